#include "phalanx/data/numpy_random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace phx {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> counting(size_t n) {
  std::vector<int32_t> values(n);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

std::vector<int32_t> shuffled(uint32_t seed) {
  std::vector<int32_t> values = counting(10);
  NumpyRandomState(seed).shuffle(std::span(values));
  return values;
}

TEST(NumpyRandomState, ShufflesAsNumpyDoes) {
  EXPECT_THAT(shuffled(0), ElementsAre(2, 8, 4, 9, 1, 6, 7, 3, 0, 5));
  EXPECT_THAT(shuffled(1), ElementsAre(2, 9, 6, 4, 0, 3, 1, 7, 8, 5));
  EXPECT_THAT(shuffled(42), ElementsAre(8, 1, 5, 0, 7, 2, 9, 4, 3, 6));
  EXPECT_THAT(shuffled(1234), ElementsAre(7, 2, 9, 1, 0, 8, 4, 5, 6, 3));
}

TEST(NumpyRandomState, GoesOnWhereTheLastShuffleStopped) {
  NumpyRandomState random(1234);
  std::vector<int32_t> first = counting(20), second = counting(10);
  random.shuffle(std::span(first));
  random.shuffle(std::span(second));
  EXPECT_THAT(first,
              ElementsAre(3, 13, 2, 16, 14, 5, 4, 0, 8, 18, 17, 11, 10, 9, 7, 1, 19, 12, 6, 15));
  EXPECT_THAT(second, ElementsAre(8, 1, 7, 6, 9, 5, 4, 3, 0, 2));
}

TEST(NumpyRandomState, DrawingAheadChangesNothing) {
  // As the description says it, one swap after the other.
  constexpr size_t kCount = 5000;
  std::vector<int32_t> fast = counting(kCount), slow = fast;
  NumpyRandomState(7).shuffle(std::span(fast));
  NumpyRandomState random(7);
  for (size_t i = kCount - 1; i >= 1; --i) std::swap(slow[i], slow[random.interval(i)]);
  EXPECT_EQ(fast, slow);
}

TEST(MersenneTwister, IsTheStandardLibrarys) {
  MersenneTwister ours(5489);
  std::mt19937 theirs(5489);
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(ours.next(), theirs()) << i;
}

TEST(TorchRandperm, IsPyTorchs) {
  EXPECT_THAT(torch_randperm(10, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(torch_randperm(10, 42), ElementsAre(2, 6, 1, 8, 4, 5, 0, 9, 3, 7));
  EXPECT_THAT(torch_randperm(12, 1), ElementsAre(1, 4, 6, 8, 11, 0, 5, 3, 2, 9, 10, 7));
  EXPECT_TRUE(torch_randperm(0, 3).empty());
}

TEST(TorchRandperm, LongOnesAreFilledFromTheBeginning) {
  // By hand from the standard library's generator: `check_datasets.py long` compares a real one
  // with PyTorch's, which takes gigabytes.
  std::mt19937 words(42);
  std::vector<int64_t> order;
  for (uint64_t i = 0; i < 1000; ++i) {
    const uint64_t high = words(), wide = high << 32 | words();
    order.push_back(int64_t(i));
    std::swap(order[i], order[wide % (i + 1)]);
  }
  EXPECT_EQ(torch_long_randperm(1000, 42), order);
  EXPECT_EQ(kLongPermutation, 214748364);
}

}  // namespace
}  // namespace phx
