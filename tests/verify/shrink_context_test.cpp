#include "phalanx/verify/shrink_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace phx {
namespace {

using ::testing::ElementsAre;

TEST(ShrinkContext, NeighboursThatExchangeHeadsStillDo) {
  const auto sizes = [](std::vector<int64_t> given, int64_t cp) {
    ParallelConfig ranks{.context_parallel_size = 16,
                         .hierarchical_context_parallel_sizes = std::move(given)};
    shrink_context_ranks(ranks, cp);
    EXPECT_EQ(ranks.context_parallel_size, cp);
    return ranks.hierarchical_context_parallel_sizes;
  };
  EXPECT_THAT(sizes({8, 2}, 4), ElementsAre(2, 2));
  EXPECT_THAT(sizes({4, 4}, 2), ElementsAre(2, 1));
  EXPECT_THAT(sizes({1, 16}, 4), ElementsAre(1, 4));
  EXPECT_THAT(sizes({5, 3}, 3), ElementsAre(3, 1));
  EXPECT_THAT(sizes({}, 4), ElementsAre());
}

TEST(ShrinkContext, FewerLayersHaveTheirWaysInTurn) {
  ParallelConfig ranks{.cp_comm_type = {"a2a", "a2a", "p2p", "p2p", "all_gather", "a2a"}};
  share_out_context_comms(ranks, 4);
  EXPECT_THAT(ranks.cp_comm_type, ElementsAre("a2a", "p2p", "all_gather", "a2a"));
  ranks.cp_comm_type = {"a2a"};
  share_out_context_comms(ranks, 4);
  EXPECT_THAT(ranks.cp_comm_type, ElementsAre("a2a"));
}

TEST(ShrinkContext, WaysThatFewerLayersCannotHaveAreNamed) {
  ParallelConfig ranks{.cp_comm_type = {"a2a", "p2p", "all_gather", "p2p"}};
  EXPECT_EQ(ways_of_layers(ranks), "a2a p2p all_gather");
  share_out_context_comms(ranks, 2);
  EXPECT_THAT(ranks.cp_comm_type, ElementsAre("a2a", "p2p"));
  EXPECT_EQ(ways_of_layers(ranks), "a2a p2p");
}

}  // namespace
}  // namespace phx
