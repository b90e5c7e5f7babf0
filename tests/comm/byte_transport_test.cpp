#include "phalanx/comm/byte_transport.h"

#include <gtest/gtest.h>

#include <set>

namespace phx {
namespace {

// Writes down whom a barrier talks to.
class Records final : public ByteTransport {
 public:
  using ByteTransport::ByteTransport;
  void all_to_all(std::span<const ByteView> to, std::span<const ByteRoom> from) override {
    std::pair<int, int> round{-1, -1};
    for (int r = 0; r < size(); ++r) {
      if (!to[r].empty()) round.first = r;
      if (!from[r].empty()) round.second = r;
    }
    rounds.push_back(round);
  }
  void send(ByteView, int) override {}
  void receive(ByteRoom, int) override {}
  void fail(const std::string &) override {}

  std::vector<std::pair<int, int>> rounds;  // to whom, from whom
};

TEST(ByteTransport, ABarrierHearsOfEverybody) {
  for (const int size : {1, 2, 3, 5, 8, 13}) {
    // By rounds: who is known to have come, of all ranks at once.
    std::vector<std::set<int>> known(size);
    std::vector<std::vector<std::pair<int, int>>> rounds;
    for (int r = 0; r < size; ++r) {
      Records transport(r, size);
      transport.barrier();
      rounds.push_back(transport.rounds);
      known[r] = {r};
    }
    for (size_t k = 0; k < rounds[0].size(); ++k) {
      const auto before = known;
      for (int r = 0; r < size; ++r) {
        const int from = rounds[r][k].second;
        EXPECT_EQ(rounds[from][k].first, r) << "where one receives the other sends";
        known[r].insert(before[from].begin(), before[from].end());
      }
    }
    for (int r = 0; r < size; ++r) EXPECT_EQ(known[r].size(), size_t(size)) << size;
  }
}

TEST(ByteTransport, ARoundOfFiveGoesOneTwoAndFourPlacesFurther) {
  Records transport(1, 5);
  transport.barrier();
  EXPECT_EQ(transport.rounds, (std::vector<std::pair<int, int>>{{2, 0}, {3, 4}, {0, 2}}));
}

TEST(BufferPool, GivesTheSmallestBufferThatSuffices) {
  BufferPool pool;
  Buffer large = pool.take(100), small = pool.take(10);
  const std::byte *large_data = large.data(), *small_data = small.data();
  pool.give_back(std::move(large));
  pool.give_back(std::move(small));
  Buffer again = pool.take(5);
  EXPECT_EQ(again.data(), small_data);
  EXPECT_EQ(again.size(), 5u);
  EXPECT_EQ(again.capacity(), 10u);
  EXPECT_EQ(pool.take(11).data(), large_data);
  EXPECT_EQ(pool.take(11).capacity(), 11u) << "the pool is empty";
}

TEST(BufferPool, CopiesBytes) {
  BufferPool pool;
  const std::byte bytes[] = {std::byte{1}, std::byte{2}};
  Buffer copy = pool.copy_of(bytes);
  ASSERT_EQ(copy.size(), 2u);
  EXPECT_EQ(copy.room()[1], std::byte{2});
  EXPECT_EQ(pool.copy_of({}).size(), 0u);
}

TEST(BufferPool, KeepsTheLargerOnesWhenItIsFull) {
  BufferPool pool;
  for (int i = 0; i < 64; ++i) pool.give_back(Buffer(8));
  pool.give_back(Buffer(1000));
  EXPECT_EQ(pool.take(500).capacity(), 1000u);
  for (int i = 0; i < 63; ++i) EXPECT_EQ(pool.take(1).capacity(), 8u);
  EXPECT_EQ(pool.take(1).capacity(), 1u) << "one of the small ones went";
}

TEST(SizeMismatch, NamesTheRankAndBothSizes) {
  const SizeMismatch error(3, 12, 16);
  EXPECT_STREQ(error.what(), "rank 3 of the group sends 12 bytes where 16 are expected");
  EXPECT_EQ(error.peer, 3);
}

}  // namespace
}  // namespace phx
