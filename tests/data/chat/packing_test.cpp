#include "phalanx/data/chat/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "phalanx/base/error.h"
#include "phalanx/data/split_mix.h"

namespace phx {
namespace {

std::vector<std::vector<int32_t>> all_packs(const Packs& packs) {
  std::vector<std::vector<int32_t>> all;
  for (int64_t i = 0; i < packs.size(); ++i)
    all.emplace_back(packs.pack(i).begin(), packs.pack(i).end());
  return all;
}

using Expected = std::vector<std::vector<int32_t>>;

TEST(Packing, InOrderTakesWhatComesUntilItDoesNotFit) {
  const std::vector<int32_t> lengths = {4, 5, 2, 8, 3, 7};
  const Packs packs = pack(lengths, 10, PackMethod::in_order);
  EXPECT_EQ(all_packs(packs), (Expected{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_DOUBLE_EQ(padding_share(packs, lengths, 10), 1.0 / 30);
}

TEST(Packing, FirstFitDecreasingPutsTheLongestFirstIntoTheFirstRoom) {
  // By length: 8 opens A, 7 opens B, 5 opens C, 4 goes to C (5 + 4), 3 to B (7 + 3), 2 to A (8 +
  // 2).
  const std::vector<int32_t> lengths = {4, 5, 2, 8, 3, 7};
  const Packs packs = pack(lengths, 10, PackMethod::first_fit_decreasing);
  EXPECT_EQ(all_packs(packs), (Expected{{2, 3}, {4, 5}, {0, 1}}));
}

TEST(Packing, WithoutPackingEachHasASampleOfItsOwn) {
  const std::vector<int32_t> lengths = {1, 2, 3};
  EXPECT_EQ(all_packs(pack(lengths, 10, PackMethod::none)), (Expected{{0}, {1}, {2}}));
  EXPECT_EQ(pack({}, 10, PackMethod::first_fit_decreasing).size(), 0);
}

TEST(Packing, EveryItemIsInOneSampleThatHoldsIt) {
  SplitMix random(7);
  for (int round = 0; round < 50; ++round) {
    const int32_t capacity = 1 + int32_t(random.below(200));
    std::vector<int32_t> lengths(random.below(400));
    for (int32_t& length : lengths) length = 1 + int32_t(random.below(uint32_t(capacity)));
    for (const PackMethod method :
         {PackMethod::none, PackMethod::in_order, PackMethod::first_fit_decreasing}) {
      const Packs packs = pack(lengths, capacity, method);
      std::vector<int> seen(lengths.size(), 0);
      for (int64_t i = 0; i < packs.size(); ++i) {
        int64_t used = 0;
        for (const int32_t item : packs.pack(i)) {
          used += lengths[size_t(item)];
          ++seen[size_t(item)];
        }
        EXPECT_GE(used, 1);
        EXPECT_LE(used, capacity);
      }
      EXPECT_TRUE(std::ranges::all_of(seen, [](int times) { return times == 1; }));
    }
  }
}

// The slow rule, word for word.
int64_t samples_by_the_rule(std::vector<int32_t> lengths, int32_t capacity) {
  std::ranges::sort(lengths, std::greater());
  std::vector<int32_t> rooms;
  for (const int32_t length : lengths) {
    auto room = std::ranges::find_if(rooms, [&](int32_t left) { return left >= length; });
    if (room == rooms.end()) room = rooms.insert(rooms.end(), capacity);
    *room -= length;
  }
  return int64_t(rooms.size());
}

TEST(Packing, TheTreeOfRoomsFindsTheFirstOne) {
  SplitMix random(3);
  for (int round = 0; round < 30; ++round) {
    std::vector<int32_t> lengths(1 + random.below(300));
    for (int32_t& length : lengths) length = 1 + int32_t(random.below(64));
    EXPECT_EQ(pack(lengths, 64, PackMethod::first_fit_decreasing).size(),
              samples_by_the_rule(lengths, 64));
  }
}

TEST(Packing, PackingByLengthLeavesLittlePadding) {
  SplitMix random(1);
  std::vector<int32_t> lengths(20000);
  for (int32_t& length : lengths) length = 20 + int32_t(random.below(1200));
  const auto padding = [&](PackMethod method) {
    return padding_share(pack(lengths, 2048, method), lengths, 2048);
  };
  // Uniform lengths from 20 to 1219, about 3.3 a sample: in order loses about half an item a
  // sample.
  EXPECT_LT(padding(PackMethod::first_fit_decreasing), 0.01);
  EXPECT_LT(padding(PackMethod::in_order), 0.25);
  EXPECT_GT(padding(PackMethod::in_order), 0.1);
  EXPECT_GT(padding(PackMethod::none), 0.65);
}

TEST(Packing, AnItemLongerThanASampleIsRefused) {
  const std::vector<int32_t> lengths = {3, 11};
  try {
    pack(lengths, 10, PackMethod::in_order);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "an item of 11 tokens cannot be packed into samples of 10");
  }
}

}  // namespace
}  // namespace phx
