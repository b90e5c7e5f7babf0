// Few rows that bring every two settings together: most faults of combined options need only two of
// them, and all rows of ten options would be hundreds of thousands.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

namespace phx::testing {

using Row = std::vector<int>;  // one setting of each option, by index

// A setting of an option, with one of another.
struct SettingPair {
  int option_a = 0, a = 0, option_b = 0, b = 0;
  auto operator<=>(const SettingPair&) const = default;
  bool in(const Row& row) const { return row[size_t(option_a)] == a && row[size_t(option_b)] == b; }
};

inline std::set<SettingPair> all_pairs(const std::vector<int>& settings) {
  std::set<SettingPair> pairs;
  for (int i = 0; i < int(settings.size()); ++i)
    for (int j = i + 1; j < int(settings.size()); ++j)
      for (int a = 0; a < settings[size_t(i)]; ++a)
        for (int b = 0; b < settings[size_t(j)]; ++b) pairs.insert({i, a, j, b});
  return pairs;
}

// Allowed rows that hold every pair which any of many random allowed rows holds. `settings`: how
// many each option has. The same rows every time.
inline std::vector<Row> pairwise_rows(const std::vector<int>& settings,
                                      const std::function<bool(const Row&)>& allowed) {
  constexpr int kCandidates = 30, kTries = 2000;  // of which the best is taken; until there are
  uint64_t state = 1;
  const auto below = [&state](int n) {  // Knuth's MMIX generator
    state = state * 6364136223846793005u + 1442695040888963407u;
    return int((state >> 33) % uint64_t(n));
  };
  std::set<SettingPair> open = all_pairs(settings);
  std::vector<Row> rows;
  while (!open.empty()) {
    const SettingPair wanted = *open.begin();
    Row best;
    size_t best_count = 0;
    for (int tries = 0, candidates = 0; tries < kTries && candidates < kCandidates; ++tries) {
      Row row;
      for (const int n : settings) row.push_back(below(n));
      row[size_t(wanted.option_a)] = wanted.a;
      row[size_t(wanted.option_b)] = wanted.b;
      if (!allowed(row)) continue;
      ++candidates;
      const auto count = size_t(std::ranges::count_if(open, [&](auto& p) { return p.in(row); }));
      if (count > best_count) {
        best = row;
        best_count = count;
      }
    }
    if (best_count == 0) {
      open.erase(wanted);  // these two exclude each other
      continue;
    }
    std::erase_if(open, [&](auto& p) { return p.in(best); });
    rows.push_back(best);
  }
  return rows;
}

}  // namespace phx::testing
