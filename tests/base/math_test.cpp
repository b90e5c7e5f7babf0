#include "phalanx/base/math.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

TEST(Math, CeilDivRoundsUp) {
  EXPECT_EQ(ceil_div(7, 4), 2);
  EXPECT_EQ(ceil_div(8, 4), 2);
  EXPECT_EQ(round_up(9, 4), 12);
}

TEST(Math, NarrowRefusesWhatDoesNotFit) {
  EXPECT_EQ(narrow<int>(int64_t{5}), 5);
  EXPECT_THROW(narrow<int>(int64_t{1} << 40), Error);
}

}  // namespace
}  // namespace phx
