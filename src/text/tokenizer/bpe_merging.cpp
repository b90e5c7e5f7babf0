// Joining the symbols of a word: three ways, by the word's length, with the same result.
#include <algorithm>
#include <bit>
#include <functional>

#include "phalanx/base/error.h"
#include "phalanx/text/tokenizer/bpe_model.h"

namespace phx {
namespace {

constexpr size_t kShortWord = 16;  // symbols of a word that is merged in registers
constexpr size_t kLongWord = 64;   // symbols; from here on a heap is faster than a scan

}  // namespace

void BpeModel::merge(std::vector<int32_t>& symbols, std::string_view word) const {
  size_t size = symbols.size();
  if (size < 2) return;
  if (size <= kShortWord) return merge_short(symbols, word);
  if (size > kLongWord) return merge_long(symbols);
  uint32_t ranks[kLongWord];  // of the pair that begins at each symbol
  for (size_t i = 0; i + 1 < size; ++i) ranks[i] = merges_.rank(symbols[i], symbols[i + 1]);
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == MergeTable::kNone) break;
    symbols[best] = merges_.merged(ranks[best]);
    --size;
    for (size_t i = best + 1; i < size; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < size; ++i) ranks[i] = ranks[i + 1];
    if (best + 1 < size) ranks[best] = merges_.rank(symbols[best], symbols[best + 1]);
    if (best > 0) ranks[best - 1] = merges_.rank(symbols[best - 1], symbols[best]);
  }
  symbols.resize(size);
}

// Symbols stay where they are, and a bit says which are left. A pair's rank and place are one
// number, so that the smallest of all is the leftmost pair of the lowest rank: no branch depends on
// where it is.
void BpeModel::merge_short(std::vector<int32_t>& symbols, std::string_view word) const {
  const size_t size = symbols.size();
  uint32_t order[kShortWord];
  int32_t left[kShortWord];
  std::fill(order, order + kShortWord, MergeTable::kNone);
  const auto placed = [](uint32_t rank, size_t at) {
    return rank == MergeTable::kNone ? rank : rank << 4 | static_cast<uint32_t>(at);
  };
  std::copy(symbols.begin(), symbols.end(), left);
  const bool bytes = options_.bytes && size == word.size();
  for (size_t i = 0; i + 1 < size; ++i) {
    order[i] = placed(bytes ? byte_ranks_[size_t{static_cast<uint8_t>(word[i])} * 256 +
                                          static_cast<uint8_t>(word[i + 1])]
                            : merges_.rank(left[i], left[i + 1]),
                      i);
  }
  uint32_t there = (1u << size) - 1;
  while (true) {
    uint32_t best = MergeTable::kNone;
#pragma omp simd reduction(min : best)
    for (size_t i = 0; i < kShortWord; ++i) best = std::min(best, order[i]);
    if (best == MergeTable::kNone) break;
    const uint32_t at = best & 15;
    const uint32_t behind = there & (~1u << at), rest = behind & (behind - 1);
    left[at] = merges_.merged(best >> 4);
    order[std::countr_zero(behind)] = MergeTable::kNone;
    there ^= behind ^ rest;
    order[at] = rest == 0 ? MergeTable::kNone
                          : placed(merges_.rank(left[at], left[std::countr_zero(rest)]), at);
    const uint32_t before = there & ((1u << at) - 1);
    if (before != 0) {
      const auto previous = static_cast<size_t>(31 - std::countl_zero(before));
      order[previous] = placed(merges_.rank(left[previous], left[at]), previous);
    }
  }
  symbols.clear();
  for (; there != 0; there &= there - 1) symbols.push_back(left[std::countr_zero(there)]);
}

// A list of symbols and a heap of pairs by (rank, position); entries that a merge has overtaken are
// known by their rank.
void BpeModel::merge_long(std::vector<int32_t>& symbols) const {
  const size_t size = symbols.size();
  PHX_CHECK(size < MergeTable::kNone, "a word of ", size, " symbols is too long");
  constexpr uint32_t kEnd = MergeTable::kNone;
  std::vector<uint32_t> next(size), previous(size), ranks(size, MergeTable::kNone);
  std::vector<uint64_t> heap;
  const auto later = std::greater<uint64_t>();
  for (size_t i = 0; i < size; ++i) {
    next[i] = i + 1 < size ? static_cast<uint32_t>(i + 1) : kEnd;
    previous[i] = i > 0 ? static_cast<uint32_t>(i - 1) : kEnd;
    if (i + 1 < size) ranks[i] = merges_.rank(symbols[i], symbols[i + 1]);
    if (ranks[i] != MergeTable::kNone) heap.push_back(uint64_t{ranks[i]} << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto renew = [&](uint32_t at) {
    ranks[at] = next[at] == kEnd ? MergeTable::kNone : merges_.rank(symbols[at], symbols[next[at]]);
    if (ranks[at] == MergeTable::kNone) return;
    heap.push_back(uint64_t{ranks[at]} << 32 | at);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const auto at = static_cast<uint32_t>(heap.back());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    heap.pop_back();
    if (ranks[at] != rank) continue;
    const uint32_t right = next[at];
    symbols[at] = merges_.merged(rank);
    ranks[right] = MergeTable::kNone;
    symbols[right] = -1;
    next[at] = next[right];
    if (next[at] != kEnd) previous[next[at]] = at;
    renew(at);
    if (previous[at] != kEnd) renew(previous[at]);
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), -1), symbols.end());
}

}  // namespace phx
