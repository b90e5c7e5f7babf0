// Which pairs of tokens a byte-pair encoding joins, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "phalanx/base/big_array.h"

namespace phx {

// Two tokens that become a third. The lowest rank goes first.
struct BpeMerge {
  int32_t left, right, merged;
  uint32_t rank;
};

// (left, right) -> rank; rank -> the token that they become. Merging waits for these lookups, so
// what they touch is kept small: the low ranks, which most words ask for, lie apart, and bits tell
// most pairs that are not there at all.
class MergeTable {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  static constexpr size_t kMaxRanks = (size_t{1} << 22) - 1;

  void build(std::span<const BpeMerge> merges);  // the last of equal pairs stays

  uint32_t rank(int32_t left, int32_t right) const {
    const uint64_t key = uint64_t(uint32_t(left)) << 21 | uint32_t(right);
    const uint64_t hash = key * 0x9E3779B97F4A7C15u;
    // All that may be needed comes from memory at once.
    const size_t bit = hash >> filter_shift_;
    const uint64_t bits = filter_.span()[bit / 64];
    __builtin_prefetch(&high_.slots.span()[hash >> high_.shift]);
    const uint32_t low = low_.find(key, hash);
    if (low != kNone) return low;
    return (bits >> bit % 64 & 1) == 0 ? kNone : high_.find(key, hash);
  }
  int32_t merged(uint32_t rank) const {
    return merged_.empty() ? first_merged_ + static_cast<int32_t>(rank) : merged_[rank];
  }

 private:
  // Open addressing; left | right | rank in a slot.
  struct Slots {
    static constexpr uint64_t kEmpty = ~uint64_t{0};

    void reserve(size_t pairs, size_t slots_a_pair);
    void add(uint64_t key, uint64_t hash, uint32_t rank);
    uint32_t find(uint64_t key, uint64_t hash) const {
      const std::span<uint64_t> all = slots.span();
      for (size_t at = hash >> shift;; at = (at + 1) & (all.size() - 1)) {
        const uint64_t slot = all[at];
        if (slot >> 22 == key) return uint32_t(slot & kMaxRanks);
        if (slot == kEmpty) return kNone;
      }
    }
    BigArray<uint64_t> slots;
    int shift = 63;
  };

  Slots low_, high_;
  BigArray<uint64_t> filter_;  // a bit for every pair of high_
  int filter_shift_ = 63;
  std::vector<int32_t> merged_;  // empty where tokens are numbered as their merges, from this on:
  int32_t first_merged_ = 0;
};

}  // namespace phx
