#include "verify/matrix_sample.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

using namespace phx::testing;

std::set<std::string> settings_of(const std::vector<MatrixLayout>& layouts) {
  std::set<std::string> settings;
  for (const MatrixLayout& layout : layouts)
    settings.insert(layout.settings.begin(), layout.settings.end());
  return settings;
}

TEST(MatrixSample, EveryTurnHasEverySettingAndFewLayouts) {
  const std::vector<MatrixLayout>& all = parity_matrix();
  ASSERT_GT(sample_turns(all.size()), 1u);
  for (size_t turn = 0; turn < sample_turns(all.size()); ++turn) {
    const std::vector<MatrixLayout> sample = sample_of_turn(all, turn);
    EXPECT_EQ(settings_of(sample), settings_of(all)) << "turn " << turn;
    EXPECT_LE(sample.size(), kSampleSize + 8) << "turn " << turn;
    std::set<std::string> names;
    for (const MatrixLayout& layout : sample)
      EXPECT_TRUE(names.insert(layout.name()).second) << layout.name() << " is there twice";
  }
}

TEST(MatrixSample, TheTurnsTogetherHaveEveryLayoutWhereverOneBegins) {
  const std::vector<MatrixLayout>& all = parity_matrix();
  const size_t turns = sample_turns(all.size());
  for (const size_t begin : {size_t{0}, size_t{1}, 7 * turns + 1}) {
    std::set<std::string> seen;
    for (size_t turn = begin; turn < begin + turns; ++turn)
      for (const MatrixLayout& layout : sample_of_turn(all, turn)) seen.insert(layout.name());
    EXPECT_EQ(seen.size(), all.size()) << "from turn " << begin;
  }
}

TEST(MatrixSample, TheSmallestShareHasEverySetting) {
  const std::vector<MatrixLayout>& all = parity_matrix();
  const std::vector<MatrixLayout> share = every_setting_once(all);
  EXPECT_LE(share.size(), all.size() / 6);
  EXPECT_EQ(settings_of(share), settings_of(all));
}

TEST(MatrixSample, ATurnThatIsNoNumberIsRefused) {
  setenv("PHX_MATRIX_TURN", "3rd", 1);
  EXPECT_THROW(matrix_turn(), Error);
  setenv("PHX_MATRIX_TURN", "12", 1);
  EXPECT_EQ(matrix_turn(), 12u);
  unsetenv("PHX_MATRIX_TURN");
  EXPECT_EQ(matrix_turn(), 0u);
}

}  // namespace
}  // namespace phx
