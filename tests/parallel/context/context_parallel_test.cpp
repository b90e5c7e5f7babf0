#include "phalanx/parallel/context/context_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/comm/meta_world.h"
#include "support/gradients.h"

namespace phx {
namespace {

using ::testing::ElementsAre;

TEST(ContextParallel, EachLayerHasItsWayOrAllHaveOne) {
  EXPECT_THAT(context_comms({"a2a", "a2a+p2p", "all_gather", "p2p"}),
              ElementsAre(ContextComm::a2a, ContextComm::a2a_p2p, ContextComm::all_gather,
                          ContextComm::p2p));
  const ContextParallel all{.comm = {ContextComm::a2a}};
  EXPECT_EQ(all.comm_of(7), ContextComm::a2a);
  const ContextParallel two{.comm = {ContextComm::a2a, ContextComm::p2p}};
  EXPECT_EQ(two.comm_of(0), ContextComm::a2a);
  EXPECT_EQ(two.comm_of(1), ContextComm::p2p);
  EXPECT_EQ(two.comm_of(2), ContextComm::p2p) << "a layer of multi-token prediction";
  EXPECT_EQ(testing::error_of([] { context_comm("ring"); }),
            "--cp-comm-type ring is none of p2p, all_gather, a2a and a2a+p2p");
}

TEST(ContextParallel, ALayerThatIsToldOfOtherRowsIsAnError) {
  MetaWorld world(1, 4);
  const auto group = world.group({0, 1, 2, 3}, "cp");
  const ContextParallel ranks{.group = group.get()};
  ranks.check({.ranks = 4, .rank = 1});
  EXPECT_EQ(
      testing::error_of([&] { ranks.check({}); }),
      "attention of rank 1 of 4 that share a sequence was told of rows of rank 0 of 1\n  hint: "
      "a model sets ForwardContext::cut to that of ModelRanks::context");
}

TEST(ContextParallel, OneRankHasTheWholeSequence) {
  const ContextParallel one;
  EXPECT_EQ(one.size(), 1);
  EXPECT_EQ(one.cut().rows(7), 7);
}

}  // namespace
}  // namespace phx
