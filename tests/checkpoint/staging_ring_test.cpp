#include "phalanx/checkpoint/staging_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace phx {
namespace {

constexpr int64_t kSlot = StagingRing::kSlotBytes;

TEST(StagingRing, PartsComeInOrderWhoeverFillsThemAndMemoryStaysBounded) {
  StagingRing ring;
  for (int file = 0; file < 2; ++file) {  // the second uses the memory of the first
    const int64_t bytes = 20 * kSlot + 5;
    ring.begin(bytes, 3 * kSlot, nullptr);
    EXPECT_FALSE(ring.holds_all());
    std::atomic<int> out{0}, most{0};
    std::vector<std::thread> fillers;
    for (int i = 0; i < 3; ++i)
      fillers.emplace_back([&] {
        while (auto slot = ring.take_empty()) {
          const int now = ++out;
          for (int before = most; before < now && !most.compare_exchange_weak(before, now);) {
          }
          std::memcpy(slot->bytes().data(), &slot->number, 5);
          ring.put_filled(std::move(slot));
        }
      });
    int64_t number = 0, total = 0;
    while (auto slot = ring.take_filled()) {
      int64_t written = 0;
      std::memcpy(&written, slot->bytes().data(), 5);
      EXPECT_EQ(slot->number, number++);
      EXPECT_EQ(written, slot->number);
      EXPECT_EQ(int64_t(reinterpret_cast<uintptr_t>(slot->bytes().data()) % 4096), 0);
      total += slot->used;
      --out;
      ring.put_empty(std::move(slot));
    }
    for (std::thread& filler : fillers) filler.join();
    EXPECT_EQ(total, bytes);
    EXPECT_LE(most, 3);
  }
}

TEST(StagingRing, GivingUpEndsEverybody) {
  StagingRing ring;
  ring.begin(10 * kSlot, 2 * kSlot, nullptr);
  std::thread filler([&] {
    while (auto slot = ring.take_empty()) ring.put_filled(std::move(slot));
  });
  std::thread writer([&] {
    auto slot = ring.take_filled();
    ring.give_up();  // with a slot in hand, and one filled
  });
  writer.join();
  filler.join();
  EXPECT_EQ(ring.take_filled(), nullptr);
  ring.begin(kSlot, 2 * kSlot, nullptr);
  EXPECT_TRUE(ring.holds_all());
  auto slot = ring.take_empty();
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(slot->number, 0);
}

}  // namespace
}  // namespace phx
