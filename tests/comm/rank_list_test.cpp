#include "phalanx/comm/rank_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace phx {
namespace {

using ::testing::HasSubstr;

TEST(RankList, IsShort) {
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({2, 3}), "ranks 2 and 3");
  EXPECT_EQ(rank_list({0, 2, 4, 5, 6, 7}), "ranks 0, 2 and 4 to 7");
  std::vector<int> many;
  for (int r = 0; r < 100; r += 2) many.push_back(r);
  EXPECT_THAT(rank_list(many), HasSubstr(", 36, 38 and 30 more"));
}

TEST(RankList, RunsOfThreeAndMoreAreJoined) {
  EXPECT_EQ(rank_list({1, 2, 3}), "ranks 1 to 3");
  EXPECT_EQ(rank_list({0, 1, 5, 6, 7, 9}), "ranks 0, 1, 5 to 7 and 9");
  EXPECT_EQ(rank_list({2, 3, 5, 6}), "ranks 2, 3, 5 and 6") << "two are no run";
}

TEST(RankList, WhatIsNotNamedIsCountedByRanksNotByRuns) {
  std::vector<int> ranks;
  for (int r = 0; r < 20; ++r) ranks.push_back(2 * r);
  EXPECT_THAT(rank_list(ranks), HasSubstr(" 36 and 38")) << "twenty fit";
  for (const int r : {100, 101, 102}) ranks.push_back(r);
  EXPECT_THAT(rank_list(ranks), HasSubstr(", 38 and 3 more"));
}

}  // namespace
}  // namespace phx
