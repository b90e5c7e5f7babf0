#include "phalanx/optim/state_share.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

using Ranges = std::vector<FlatRange>;

TEST(SplitRanges, CutsAtAMultipleOf128) {
  const Ranges whole = {{0, 1280}};
  const SplitRanges half = split(whole, 0.5);
  EXPECT_EQ(half.first, (Ranges{{0, 640}}));
  EXPECT_EQ(half.rest, (Ranges{{640, 640}}));
  const SplitRanges third = split(whole, 1.0 / 3);  // 427 elements, the next multiple is 512
  EXPECT_EQ(third.first, (Ranges{{0, 512}}));
  EXPECT_EQ(third.rest, (Ranges{{512, 768}}));
}

TEST(SplitRanges, GoesThroughARanksPiecesInOrder) {
  const Ranges owned = {{0, 256}, {1024, 256}, {2048, 256}};
  const SplitRanges parts = split(owned, 0.5);
  EXPECT_EQ(parts.first, (Ranges{{0, 256}, {1024, 128}}));
  EXPECT_EQ(parts.rest, (Ranges{{1152, 128}, {2048, 256}}));
}

TEST(SplitRanges, NothingAndEverythingHaveOneSide) {
  const Ranges owned = {{0, 100}, {200, 28}};
  EXPECT_TRUE(split(owned, 0).first.empty());
  EXPECT_EQ(split(owned, 0).rest, owned);
  EXPECT_EQ(split(owned, 1).first, owned);
  EXPECT_TRUE(split(owned, 1).rest.empty());
}

}  // namespace
}  // namespace phx
