// Host memory that a checkpoint goes through on its way to a file: a bounded number of slots,
// filled by one thread and emptied by another. Pinned where the device copies into it by itself.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/runtime.h"

namespace phx {

class StagingRing {
 public:
  static constexpr int64_t kSlotBytes = 8 << 20;

  struct Slot {
    std::shared_ptr<void> memory;
    int64_t used = 0;
    std::span<std::byte> bytes(int64_t from, int64_t count) const {
      return {static_cast<std::byte*>(memory.get()) + from, size_t(count)};
    }
  };

  // Room for `bytes`, up to `most` bytes. Memory of earlier saves is used again.
  void make_room(Backend& backend, int64_t bytes, int64_t most);

  // The filling thread. Nothing: the other side has given up.
  std::unique_ptr<Slot> take_empty();
  void put_filled(std::unique_ptr<Slot> slot);
  void end();  // nothing more will be filled

  // The emptying thread. Nothing: all has been taken.
  std::unique_ptr<Slot> take_filled();
  void put_empty(std::unique_ptr<Slot> slot);
  void give_up();  // take_empty returns nothing from here on

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Slot>> empty_, filled_;
  bool ended_ = false, given_up_ = false;
};

}  // namespace phx
