#include "phalanx/text/tokenizer/merge_table.h"

#include <algorithm>
#include <bit>

#include "phalanx/base/error.h"

namespace phx {
namespace {

constexpr uint32_t kLowRanks = 8192;  // in 256 KiB: a part of a core's own cache

}  // namespace

void MergeTable::Slots::reserve(size_t pairs, size_t slots_a_pair) {
  const size_t size = std::bit_ceil(pairs * slots_a_pair + 2);
  slots = BigArray<uint64_t>(static_cast<int64_t>(size));
  std::fill(slots.span().begin(), slots.span().end(), kEmpty);
  shift = 64 - std::countr_zero(size);
}

void MergeTable::Slots::add(uint64_t key, uint64_t hash, uint32_t rank) {
  const std::span<uint64_t> all = slots.span();
  size_t at = hash >> shift;
  while (all[at] != kEmpty) at = (at + 1) & (all.size() - 1);
  all[at] = key << 22 | rank;
}

void MergeTable::build(std::span<const BpeMerge> merges) {
  size_t num_low = 0;
  for (const BpeMerge& merge : merges) {
    PHX_CHECK(merge.rank < kMaxRanks, "a BPE should have fewer than ", kMaxRanks, " merges");
    num_low += merge.rank < kLowRanks;
    if (merged_.size() <= merge.rank) merged_.resize(merge.rank + 1);
    merged_[merge.rank] = merge.merged;
  }
  first_merged_ = merges.empty() ? 0 : merges[0].merged - static_cast<int32_t>(merges[0].rank);
  const auto in_order = [&](const BpeMerge& merge) {
    return merge.merged == first_merged_ + static_cast<int32_t>(merge.rank);
  };
  if (std::all_of(merges.begin(), merges.end(), in_order)) merged_ = {};
  low_.reserve(num_low, 4);
  high_.reserve(merges.size() - num_low, 2);
  const size_t bits = std::bit_ceil(std::max<size_t>(64, 8 * (merges.size() - num_low)));
  filter_ = BigArray<uint64_t>(static_cast<int64_t>(bits / 64));
  filter_shift_ = 64 - std::countr_zero(bits);
  for (size_t i = merges.size(); i-- > 0;) {
    const BpeMerge& merge = merges[i];
    if (rank(merge.left, merge.right) != kNone) continue;
    const uint64_t key = uint64_t(uint32_t(merge.left)) << 21 | uint32_t(merge.right);
    const uint64_t hash = key * 0x9E3779B97F4A7C15u;
    if (merge.rank < kLowRanks) {
      low_.add(key, hash, merge.rank);
    } else {
      high_.add(key, hash, merge.rank);
      const size_t bit = hash >> filter_shift_;
      filter_.span()[bit / 64] |= uint64_t{1} << bit % 64;
    }
  }
}

}  // namespace phx
