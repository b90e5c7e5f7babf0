#include "phalanx/parallel/rank_grid.h"

#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx {
namespace {

using Groups = std::vector<std::vector<int>>;

// 8 ranks, TP 2, PP 2, DP 2.
TEST(RankGrid, EightRanksGroupAsInMegatron) {
  const RankGrid grid({.tp = 2, .dp = 2, .pp = 2});
  EXPECT_EQ(grid.groups("tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(grid.groups("pp"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(grid.groups("dp"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(grid.groups("dp-cp"), grid.groups("dp"));
  EXPECT_EQ(grid.groups("tp-pp"), (Groups{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(grid.groups("tp-dp-cp"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST(RankGrid, EightRanksGroupTheirExpertsAsInMegatron) {
  const RankGrid two({.tp = 1, .ep = 2, .dp = 2, .pp = 2});
  EXPECT_EQ(two.groups("ep"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(two.groups("tp"), (Groups{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));
  EXPECT_EQ(two.groups("tp-ep"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(two.groups("dp"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(two.groups("tp-ep-pp"), (Groups{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  const RankGrid both({.tp = 2, .ep = 2, .dp = 1, .pp = 2});
  EXPECT_EQ(both.groups("tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(both.groups("ep"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(both.groups("tp-ep"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(both.groups("dp"), (Groups{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));
  EXPECT_EQ(both.groups("tp-ep-pp"), (Groups{{0, 1, 2, 3, 4, 5, 6, 7}}));
}

// 16 ranks, TP 2, CP 2, PP 2, DP 2.
TEST(RankGrid, SixteenRanksGroupAsInMegatron) {
  const RankGrid grid({.tp = 2, .cp = 2, .dp = 2, .pp = 2});
  EXPECT_EQ(grid.groups("tp"),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(grid.groups("cp"),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(grid.groups("dp"),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(grid.groups("dp-cp"),
            (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(grid.groups("pp"),
            (Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
  EXPECT_EQ(grid.groups("tp-pp"),
            (Groups{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}}));
  EXPECT_EQ(grid.groups("tp-cp"),
            (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(grid.groups("tp-dp"),
            (Groups{{0, 1, 4, 5}, {2, 3, 6, 7}, {8, 9, 12, 13}, {10, 11, 14, 15}}));
  EXPECT_EQ(grid.groups("tp-dp-cp"),
            (Groups{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
}

TEST(RankGrid, SixteenRanksGroupTheirExpertsAsInMegatron) {
  const RankGrid one({.tp = 1, .ep = 4, .dp = 2, .pp = 2});
  const Groups quads{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}};
  EXPECT_EQ(one.groups("ep"), quads);
  EXPECT_EQ(one.groups("tp-ep"), quads);
  EXPECT_EQ(one.groups("dp"),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(one.groups("tp-ep-pp"),
            (Groups{{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}}));
  const RankGrid two({.tp = 2, .ep = 4, .dp = 1, .pp = 2});
  EXPECT_EQ(two.groups("ep"),
            (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(two.groups("tp-ep"),
            (Groups{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
  EXPECT_EQ(two.groups("tp-ep-pp").size(), 1u);
}

TEST(RankGrid, TheOtherOrderPutsThePipelineInsideOfTheData) {
  const RankGrid grid({.tp = 2, .dp = 2, .pp = 2}, kPipelineBeforeData);
  EXPECT_EQ(grid.groups("pp"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(grid.groups("dp"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(RankGrid, ARanksOwnGroupIsTheOneInTheList) {
  for (const char* order : {kDefaultOrder, kPipelineBeforeData}) {
    const RankGrid grid({.tp = 2, .cp = 2, .dp = 3, .pp = 2}, order);
    for (const char* tokens : {"tp", "dp", "dp-cp", "tp-pp", "tp-cp", "tp-dp-cp", "pp"})
      for (const auto& group : grid.groups(tokens))
        for (const int rank : group) EXPECT_EQ(grid.group_of(rank, tokens), group) << tokens;
  }
}

TEST(RankGrid, EmbeddingsAreHeldByTheEndsOfEachPipeline) {
  const RankGrid grid({.tp = 2, .dp = 1, .pp = 4});
  EXPECT_EQ(embedding_groups(grid), (Groups{{0, 6}, {1, 7}}));
  EXPECT_EQ(position_embedding_groups(grid), (Groups{{0}, {1}}));
  EXPECT_EQ(embedding_groups(RankGrid({.tp = 1, .dp = 2, .pp = 1})), (Groups{{0}, {1}}));
}

TEST(RankGrid, GroupsAreCutIntoConsecutiveAndStridedParts) {
  const Groups whole{{0, 2, 4, 6}};
  EXPECT_EQ(consecutive_parts(whole, 2), (Groups{{0, 2}, {4, 6}}));
  EXPECT_EQ(strided_parts(whole, 2), (Groups{{0, 4}, {2, 6}}));
}

TEST(RankGrid, RefusesWhatIsNoAxis) {
  const RankGrid grid({.tp = 2});
  EXPECT_EQ(testing::error_of([&] { grid.groups("tp-xp"); }),
            "'xp' is no axis of the mesh; they are tp, cp, ep, dp, pp");
  EXPECT_EQ(testing::error_of([&] { RankGrid({}, "tp-pp"); }),
            "the order of ranks 'tp-pp' should name tp, cp, ep, dp and pp once each");
}

}  // namespace
}  // namespace phx
