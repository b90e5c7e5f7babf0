// Host memory that a file goes through on its way to the disk: a bounded number of slots. The file
// is cut into numbered parts of a slot's size; threads that fill take empty slots, each for the
// next part, and threads that write get the parts in their order. Pinned where a device copies into
// it by itself; aligned, so that the disk can take it from there without another copy.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "phalanx/core/runtime.h"

namespace phx {

class StagingRing {
 public:
  static constexpr int64_t kSlotBytes = 8 << 20;

  struct Slot {
    std::shared_ptr<void> memory;
    int64_t number = 0;  // of the part
    int64_t used = 0;
    std::span<std::byte> bytes() const {
      return {static_cast<std::byte*>(memory.get()), size_t(used)};
    }
  };

  // Makes the memory for such a file ahead of begin(). From any thread, while no file is under way.
  void reserve(int64_t bytes, int64_t most, Runtime* device);

  // For a file of `bytes`, with at most `most` bytes of memory (but two slots at least). Memory of
  // earlier files is used again. `device`: what copies into it, null for the host alone.
  void begin(int64_t bytes, int64_t most, Runtime* device);
  bool holds_all() const { return holds_all_; }  // whether no slot has to be used twice

  // The filling threads: a slot for the next part, with its `used`. Nothing: all parts have been
  // given out, or somebody has given up.
  std::unique_ptr<Slot> take_empty();
  void put_filled(std::unique_ptr<Slot> slot);

  // The writing threads: the next part. Nothing: as above.
  std::unique_ptr<Slot> take_filled();
  void put_empty(std::unique_ptr<Slot> slot);

  void give_up();  // of any thread, which is the end for all of them

 private:
  void grow(int64_t wanted, Runtime* device);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Slot>> empty_;
  std::map<int64_t, std::unique_ptr<Slot>> filled_;
  int64_t limit_ = std::numeric_limits<int64_t>::max();  // slots that the machine has room for
  int64_t bytes_ = 0, parts_ = 0, given_out_ = 0, taken_ = 0;
  bool given_up_ = false, holds_all_ = false;
};

}  // namespace phx
