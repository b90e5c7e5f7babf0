#include "phalanx/data/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <vector>

#include "phalanx/base/error.h"

namespace phx {
namespace {

std::vector<int64_t> epoch_of(const SampleOrder& order, int64_t epoch, int64_t n) {
  std::vector<int64_t> samples(n);
  for (int64_t i = 0; i < n; ++i) samples[i] = order.at(epoch * n + i);
  return samples;
}

TEST(SampleOrder, EveryEpochHoldsEverySampleOnce) {
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 16, 17, 100, 1000, 4097}) {
    const SampleOrder order(1234, n);
    std::vector<int64_t> all(n);
    std::iota(all.begin(), all.end(), 0);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> samples = epoch_of(order, epoch, n);
      std::sort(samples.begin(), samples.end());
      EXPECT_EQ(samples, all) << n << " samples, epoch " << epoch;
    }
  }
}

TEST(SampleOrder, EpochsAndSeedsDiffer) {
  const SampleOrder order(1, 1000), other(2, 1000);
  EXPECT_NE(epoch_of(order, 0, 1000), epoch_of(order, 1, 1000));
  EXPECT_NE(epoch_of(order, 0, 1000), epoch_of(other, 0, 1000));
  EXPECT_EQ(epoch_of(order, 5, 1000), epoch_of(SampleOrder(1, 1000), 5, 1000));
}

TEST(SampleOrder, StaysTheSameForever) {
  // Checkpoints of older versions resume in this order: these numbers never change.
  const SampleOrder order(1234, 10);
  EXPECT_EQ(epoch_of(order, 0, 10), (std::vector<int64_t>{9, 2, 3, 5, 4, 0, 1, 8, 6, 7}));
}

TEST(SampleOrder, AllOrdersOfFourAreAboutEquallyOften) {
  std::map<std::vector<int64_t>, int> seen;
  constexpr int kEpochs = 24000;
  const SampleOrder order(7, 4);
  for (int epoch = 0; epoch < kEpochs; ++epoch) ++seen[epoch_of(order, epoch, 4)];
  ASSERT_EQ(seen.size(), 24u);
  // Expected 1000 of each, with a standard deviation of sqrt(1000 * 23/24) = 31: 5 of them.
  for (const auto& [samples, count] : seen) EXPECT_NEAR(count, 1000, 155);
}

TEST(SampleOrder, NeighboursDoNotStayTogether) {
  constexpr int64_t n = 100000;
  const SampleOrder order(3, n);
  int64_t close = 0;
  for (int64_t i = 0; i + 1 < n; ++i) close += std::abs(order.at(i + 1) - order.at(i)) <= 10;
  // Two random samples are within 10 of each other with 20/n: 20 expected, deviation 4.5.
  EXPECT_LT(close, 20 + 5 * 4.5);
}

TEST(SampleOrder, NothingToOrderIsAnError) { EXPECT_THROW(SampleOrder(1, 0), Error); }

}  // namespace
}  // namespace phx
