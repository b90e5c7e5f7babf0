#include "phalanx/base/distance.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "phalanx/base/error.h"

namespace phx {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Values = std::vector<double>;

TEST(Distance, WhatCannotBeComparedIsInfinitelyFarAway) {
  EXPECT_EQ(distance(1, -2), 3);
  EXPECT_EQ(distance(kNan, 1), kInfinity);
  EXPECT_EQ(distance(1, kNan), kInfinity);
  EXPECT_EQ(distance(kNan, kNan), kInfinity);
  EXPECT_EQ(distance(kInfinity, kInfinity), kInfinity);
  EXPECT_EQ(distance(kInfinity, 1), kInfinity);
}

TEST(RelativeError, IsTheLargestDifferenceOfTheLargestValue) {
  EXPECT_EQ(relative_error(Values{1, -4, 2}, Values{1, -4, 3}), 0.25);
  EXPECT_EQ(relative_error(Values{0, 0.5}, Values{0, 0}), 0.5);
  EXPECT_EQ(relative_error(Values{}, Values{}), 0);
}

TEST(RelativeError, ANanIsTheWorstWhereverItStands) {
  for (size_t at = 0; at < 3; ++at) {
    const Values good = {1, 2, 3};
    Values bad = good;
    bad[at] = kNan;
    EXPECT_EQ(relative_error(bad, good), kInfinity) << at;
    EXPECT_EQ(relative_error(good, bad), kInfinity) << at;
    bad[at] = kInfinity;
    EXPECT_EQ(relative_error(bad, good), kInfinity) << at;
    EXPECT_EQ(relative_error(good, bad), kInfinity) << at;
    EXPECT_EQ(relative_error(bad, bad), kInfinity) << at;
  }
}

TEST(RelativeError, RefusesListsOfDifferentLengths) {
  EXPECT_THROW(relative_error(Values{1}, Values{1, 2}), Error);
}

}  // namespace
}  // namespace phx
