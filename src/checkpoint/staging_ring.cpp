#include "checkpoint/staging_ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/math.h"

namespace phx {

namespace {

// In large pages: a slot of small ones costs two thousand page faults when it is first filled.
std::shared_ptr<void> host_memory() {
  constexpr size_t kLargePage = 2 << 20;
  void* memory = std::aligned_alloc(kLargePage, size_t(StagingRing::kSlotBytes));
  PHX_CHECK(memory != nullptr, "no memory left for a checkpoint on its way to the disk",
            "\n  hint: --save-buffer-mib limits it");
  (void)::madvise(memory, size_t(StagingRing::kSlotBytes), MADV_HUGEPAGE);
  return {memory, std::free};
}

}  // namespace

void StagingRing::begin(int64_t bytes, int64_t most, Runtime* device) {
  const std::lock_guard lock(mutex_);
  for (auto& [number, slot] : filled_) empty_.push_back(std::move(slot));  // of one given up
  filled_.clear();
  bytes_ = bytes;
  parts_ = ceil_div(bytes, kSlotBytes);
  given_out_ = taken_ = 0;
  given_up_ = false;
  const int64_t wanted = std::min(parts_, std::max<int64_t>(most / kSlotBytes, 2));
  while (int64_t(empty_.size()) < wanted) {
    auto slot = std::make_unique<Slot>();
    slot->memory = device != nullptr ? device->backend().host_buffer(kSlotBytes) : host_memory();
    empty_.push_back(std::move(slot));
  }
  holds_all_ = int64_t(empty_.size()) >= parts_;
}

std::unique_ptr<StagingRing::Slot> StagingRing::take_empty() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !empty_.empty() || given_out_ == parts_ || given_up_; });
  if (given_out_ == parts_ || given_up_) return nullptr;
  auto slot = std::move(empty_.front());
  empty_.pop_front();
  // Only who has a slot gets a number, so the part that comes next is never without memory.
  slot->number = given_out_++;
  slot->used = std::min(kSlotBytes, bytes_ - slot->number * kSlotBytes);
  if (given_out_ == parts_) changed_.notify_all();
  return slot;
}

void StagingRing::put_filled(std::unique_ptr<Slot> slot) {
  const std::lock_guard lock(mutex_);
  const int64_t number = slot->number;
  filled_[number] = std::move(slot);
  changed_.notify_all();
}

std::unique_ptr<StagingRing::Slot> StagingRing::take_filled() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return filled_.contains(taken_) || taken_ == parts_ || given_up_; });
  if (taken_ == parts_ || given_up_) return nullptr;
  auto slot = std::move(filled_.extract(taken_).mapped());
  if (++taken_ == parts_) changed_.notify_all();
  return slot;
}

void StagingRing::put_empty(std::unique_ptr<Slot> slot) {
  const std::lock_guard lock(mutex_);
  empty_.push_front(std::move(slot));  // the one used last is in a cache, maybe
  changed_.notify_all();
}

void StagingRing::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

}  // namespace phx
