#include "phalanx/comm/settings.h"

#include <algorithm>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/comm/rank_list.h"
#include "phalanx/comm/tcp_store.h"

namespace phx {

namespace {

constexpr const char* kVerdict = "settings/verdict";
constexpr const char* kNothing = "nothing";  // where a rank does not have a setting at all

// One setting's values and the ranks that have them, the most frequent value first.
std::string line_of(const std::string& key, const std::map<std::string, std::vector<int>>& values) {
  constexpr size_t kMostValues = 4;
  std::vector<std::pair<std::string, std::vector<int>>> sorted(values.begin(), values.end());
  std::ranges::stable_sort(
      sorted, [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string line = str_cat("\n  ", key, ": ");
  for (size_t i = 0; i < std::min(sorted.size(), kMostValues); ++i)
    line += str_cat(i > 0 ? "; " : "", sorted[i].first, " on ", rank_list(sorted[i].second));
  if (sorted.size() > kMostValues)
    line += str_cat("; and ", sorted.size() - kMostValues, " other values");
  return line;
}

}  // namespace

std::string settings_text(const Settings& settings) {
  // A path or a variable may hold any bytes.
  return nlohmann::json(settings).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Settings parse_settings(const std::string& text) {
  Settings settings;
  const nlohmann::json values = parse_json(text);
  for (const auto& [key, value] : values.items()) settings[key] = value.get<std::string>();
  return settings;
}

std::string settings_differences(std::span<const Settings> of_ranks) {
  Settings all;
  for (const Settings& settings : of_ranks) all.insert(settings.begin(), settings.end());
  std::string differences;
  for (const auto& [key, unused] : all) {
    std::map<std::string, std::vector<int>> values;
    for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
      const auto found = of_ranks[rank].find(key);
      values[found == of_ranks[rank].end() ? kNothing : found->second].push_back(int(rank));
    }
    if (values.size() > 1) differences += line_of(key, values);
  }
  if (differences.empty()) return "";
  return str_cat("the ranks of this run were not started alike:", differences,
                 "\n  hint: start every rank with the same program, flags, data and environment");
}

void compare_settings(TcpStore& store, int rank, int size, const Settings& own) {
  if (size == 1) return;
  const auto key = [](int r) { return str_cat("settings/", r); };
  std::string verdict;
  if (rank == 0) {
    std::vector<Settings> of_ranks = {own};
    for (int r = 1; r < size; ++r) of_ranks.push_back(parse_settings(store.get(key(r))));
    verdict = settings_differences(of_ranks);
    store.set(kVerdict, verdict);
  } else {
    store.set(key(rank), settings_text(own));
    verdict = store.get(kVerdict);
  }
  if (verdict.empty()) return;
  store.leave();  // so that nobody hears of a dead rank instead
  throw_error(verdict);
}

}  // namespace phx
