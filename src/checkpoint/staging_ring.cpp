#include "phalanx/checkpoint/staging_ring.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/log.h"
#include "phalanx/base/math.h"
#include "phalanx/core/host_region.h"

namespace phx {

namespace {

// Slots that are made together: 1 GiB, which a device pins in one call.
constexpr int64_t kSlotsOfRegion = 128;

int64_t slots_for(int64_t bytes, int64_t most) {
  return std::min(ceil_div(bytes, StagingRing::kSlotBytes),
                  std::max<int64_t>(most / StagingRing::kSlotBytes, 2));
}

}  // namespace

void StagingRing::reserve(int64_t bytes, int64_t most, Runtime* device) {
  const std::lock_guard lock(mutex_);
  grow(slots_for(bytes, most), device);
}

// A machine with less memory than it said gets a smaller ring, of two slots at least, and is not
// asked again.
void StagingRing::grow(int64_t wanted, Runtime* device) {
  int64_t most_at_once = kSlotsOfRegion;
  wanted = std::min(wanted, limit_);
  while (int64_t(empty_.size()) < wanted) {
    const int64_t count = std::min(most_at_once, wanted - int64_t(empty_.size()));
    std::shared_ptr<void> region;
    try {
      region = device != nullptr ? device->backend().host_region(count * kSlotBytes)
                                 : host_region(count * kSlotBytes);
    } catch (const Error& error) {
      most_at_once = count / 2;
      if (most_at_once > 0) continue;
      PHX_CHECK(empty_.size() >= 2,
                "no memory left for a checkpoint on its way to the disk: ", error.what(),
                "\n  hint: --save-buffer-mib limits it");
      log_warning(str_cat("saves go through ", format_bytes(int64_t(empty_.size()) * kSlotBytes),
                          " of host memory instead of ", format_bytes(wanted * kSlotBytes), ": ",
                          error.what()));
      limit_ = int64_t(empty_.size());
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      auto slot = std::make_unique<Slot>();
      slot->memory = {region, static_cast<std::byte*>(region.get()) + i * kSlotBytes};
      empty_.push_back(std::move(slot));
    }
  }
}

void StagingRing::begin(int64_t bytes, int64_t most, Runtime* device) {
  const std::lock_guard lock(mutex_);
  for (auto& [number, slot] : filled_) empty_.push_back(std::move(slot));  // of one given up
  filled_.clear();
  bytes_ = bytes;
  parts_ = ceil_div(bytes, kSlotBytes);
  given_out_ = taken_ = 0;
  given_up_ = false;
  grow(slots_for(bytes, most), device);
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
