#include "checkpoint/staging_ring.h"

#include <algorithm>

#include "base/math.h"

namespace phx {

void StagingRing::make_room(Backend& backend, int64_t bytes, int64_t most) {
  const int64_t wanted =
      std::max<int64_t>(std::min(ceil_div(bytes, kSlotBytes), most / kSlotBytes), 2);
  const std::lock_guard lock(mutex_);
  while (!filled_.empty()) {  // of a save that was given up
    empty_.push_back(std::move(filled_.front()));
    filled_.pop_front();
  }
  ended_ = given_up_ = false;
  while (int64_t(empty_.size()) < wanted) {
    auto slot = std::make_unique<Slot>();
    slot->memory = backend.host_buffer(kSlotBytes);
    empty_.push_back(std::move(slot));
  }
}

std::unique_ptr<StagingRing::Slot> StagingRing::take_empty() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !empty_.empty() || given_up_; });
  if (given_up_) return nullptr;
  auto slot = std::move(empty_.front());
  empty_.pop_front();
  slot->used = 0;
  return slot;
}

void StagingRing::put_filled(std::unique_ptr<Slot> slot) {
  const std::lock_guard lock(mutex_);
  filled_.push_back(std::move(slot));
  changed_.notify_all();
}

void StagingRing::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

std::unique_ptr<StagingRing::Slot> StagingRing::take_filled() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !filled_.empty() || ended_; });
  if (filled_.empty()) return nullptr;
  auto slot = std::move(filled_.front());
  filled_.pop_front();
  return slot;
}

void StagingRing::put_empty(std::unique_ptr<Slot> slot) {
  const std::lock_guard lock(mutex_);
  empty_.push_back(std::move(slot));
  changed_.notify_all();
}

void StagingRing::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

}  // namespace phx
