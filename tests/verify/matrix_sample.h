// Which layouts of the matrix a test runs.
//
// The matrix grows with every option, and a test of each commit has minutes. Such a test takes a
// sample. The layouts are dealt to as few turns as make samples of about kSampleSize: layout i
// belongs to turn i mod turns. A turn's sample is its layouts, and where these lack a setting of an
// option, the layouts that bring the missing ones. So every sample has every setting, and any
// `turns` consecutive turns have every layout, thereby every pair of settings that go together.
//
// PHX_MATRIX_TURN is the turn (0 if unset). Continuous integration counts commits, so a commit that
// is tested again has the same sample, and the next commit has the next. PHX_ALL_LAYOUTS=1 runs
// every layout: scripts/nightly.sh.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "phalanx/base/error.h"
#include "verify/parity_matrix.h"

namespace phx::testing {

constexpr size_t kSampleSize = 56;

// Adds to `sample` what it lacks of the settings of `layouts`: one after the other the layout that
// brings most new ones, of equals the one of fewest ranks. Always the same ones.
inline void complete_settings(std::vector<MatrixLayout>& sample,
                              std::vector<MatrixLayout> layouts) {
  std::set<std::string> seen;
  for (const MatrixLayout& layout : sample)
    seen.insert(layout.settings.begin(), layout.settings.end());
  const auto news = [&](const MatrixLayout& layout) {
    return std::ranges::count_if(layout.settings,
                                 [&](const std::string& name) { return !seen.contains(name); });
  };
  while (!layouts.empty()) {
    const auto best = std::ranges::max_element(layouts, {}, [&](const MatrixLayout& layout) {
      return std::pair(news(layout), -layout.world);
    });
    if (news(*best) == 0) break;
    seen.insert(best->settings.begin(), best->settings.end());
    sample.push_back(*best);
    layouts.erase(best);
  }
}

// The smallest share, for what is slow: sanitizers, and resuming in several precisions.
inline std::vector<MatrixLayout> every_setting_once(const std::vector<MatrixLayout>& layouts) {
  std::vector<MatrixLayout> share;
  complete_settings(share, layouts);
  return share;
}

inline size_t sample_turns(size_t layouts) { return (layouts + kSampleSize - 1) / kSampleSize; }

inline std::vector<MatrixLayout> sample_of_turn(const std::vector<MatrixLayout>& layouts,
                                                size_t turn) {
  const size_t turns = sample_turns(layouts.size());
  std::vector<MatrixLayout> sample;
  for (size_t i = turn % turns; i < layouts.size(); i += turns) sample.push_back(layouts[i]);
  complete_settings(sample, layouts);
  return sample;
}

inline size_t matrix_turn() {
  const char* text = std::getenv("PHX_MATRIX_TURN");
  if (text == nullptr) return 0;
  size_t turn = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, turn);
  PHX_CHECK(error == std::errc() && stop == end, "PHX_MATRIX_TURN should be a number, not ", text);
  return turn;
}

inline bool all_layouts_wanted() { return std::getenv("PHX_ALL_LAYOUTS") != nullptr; }

inline std::vector<MatrixLayout> layouts_to_run(
    const std::vector<MatrixLayout>& matrix = parity_matrix()) {
  if (all_layouts_wanted()) return matrix;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return every_setting_once(matrix);  // each is some five times as slow
#else
  return sample_of_turn(matrix, matrix_turn());
#endif
}

}  // namespace phx::testing
