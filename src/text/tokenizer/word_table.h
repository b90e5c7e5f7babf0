// A hash table of short words and the tokens they become: the key lies in the slot, so that a
// lookup touches one cache line. WordTable serves the whole vocabulary (open addressing), WordCache
// holds a fixed number of words that a thread has met.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "phalanx/base/big_array.h"

namespace phx {

inline constexpr size_t kMaxShortWord = 15;

// Up to 15 bytes, zeros after them, and the length in the lower half of the last byte.
struct ShortWord {
  uint64_t low = 0, high = 0;

  static constexpr ShortWord none() { return {~uint64_t{0}, ~uint64_t{0}}; }  // equals no word

  // Bytes from `data` on may be read up to `end` of the text that the word lies in.
  static ShortWord load(const char* data, size_t size, const char* end) {
    ShortWord bytes;
    if (end - data >= 16) {
      std::memcpy(&bytes, data, 16);
      return cut(bytes, size);
    }
    std::memcpy(&bytes, data, size);
    bytes.high |= uint64_t{size} << 56;
    return bytes;
  }
  // The first `size` of 16 bytes.
  static ShortWord cut(const ShortWord& bytes, size_t size) {
    return {bytes.low & kLowMask[size], (bytes.high & kHighMask[size]) | uint64_t{size} << 56};
  }

  uint64_t hash() const {
    const auto product =
        static_cast<unsigned __int128>(low ^ 0x9E3779B97F4A7C15u) * (high ^ 0xD1B54A32D192ED03u);
    return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
  }

 private:
  static constexpr std::array<uint64_t, 16> mask(size_t skip) {
    std::array<uint64_t, 16> masks{};
    for (size_t n = 0; n < 16; ++n) {
      const size_t bytes = n < skip ? 0 : std::min<size_t>(n - skip, 8);
      masks[n] = bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << bytes * 8) - 1;
    }
    return masks;
  }
  static const std::array<uint64_t, 16> kLowMask, kHighMask;
};
inline constexpr std::array<uint64_t, 16> ShortWord::kLowMask = ShortWord::mask(0);
inline constexpr std::array<uint64_t, 16> ShortWord::kHighMask = ShortWord::mask(8);

// Up to four tokens; how many stands in the bits of the key that no length takes.
struct alignas(32) WordSlot {
  static constexpr size_t kMaxTokens = 4;

  WordSlot() = default;
  WordSlot(const ShortWord& word, const int32_t* tokens, size_t count)
      : low(word.low), high_and_count(word.high | uint64_t{count} << 60) {
    std::copy_n(tokens, count, ids);
  }
  bool empty() const { return high_and_count == 0; }
  bool holds(const ShortWord& word) const {
    return low == word.low && (high_and_count & ~(uint64_t{15} << 60)) == word.high;
  }
  size_t count() const { return high_and_count >> 60; }

  uint64_t low = 0, high_and_count = 0;
  int32_t ids[kMaxTokens] = {};
};
static_assert(sizeof(WordSlot) == 32);

class WordTable {
 public:
  void reserve(size_t words) {
    slots_ = BigArray<WordSlot>(static_cast<int64_t>(std::bit_ceil(words * 2 + 2)));
  }

  // Words are added once, up to as many as were reserved.
  void add(const ShortWord& word, const int32_t* ids, size_t count) {
    const std::span<WordSlot> slots = slots_.span();
    size_t at = word.hash() & (slots.size() - 1);
    while (!slots[at].empty()) at = (at + 1) & (slots.size() - 1);
    slots[at] = WordSlot(word, ids, count);
  }
  // Where the word is, if it is there and no other is in its way.
  const WordSlot* first_place(uint64_t hash) const {
    const std::span<WordSlot> slots = slots_.span();
    return &slots[hash & (slots.size() - 1)];
  }
  const WordSlot* find(const ShortWord& word, uint64_t hash) const {  // null when there is none
    const std::span<WordSlot> slots = slots_.span();
    const size_t mask = slots.size() - 1;
    for (size_t at = hash & mask; !slots[at].empty(); at = (at + 1) & mask) {
      if (slots[at].holds(word)) return &slots[at];
    }
    return nullptr;
  }

 private:
  BigArray<WordSlot> slots_{2};
};

// Words that a thread has met. A word is in one of two places. A new one takes the second, and
// moves to the first when it is met again: words that come once push out each other, not those that
// come often.
class WordCache {
 public:
  const WordSlot* first_place(uint64_t hash) { return &pair(hash).often; }
  // In the second place; it moves to the first. Null when it is not there.
  const WordSlot* find_second(const ShortWord& word, uint64_t hash) {
    Pair& slots = pair(hash);
    if (!slots.new_one.holds(word)) return nullptr;
    std::swap(slots.often, slots.new_one);
    return &slots.often;
  }
  // A word of one token costs little to find again in the vocabulary, others have to be merged:
  // those give way to it only now and then.
  void add(const WordSlot& slot, uint64_t hash) {
    WordSlot& place = pair(hash).new_one;
    if (slot.count() == 1 && place.count() > 1 && ++spared_ % 8 != 0) return;
    place = slot;
  }
  void clear() { std::fill(pairs_.span().begin(), pairs_.span().end(), Pair{}); }

 private:
  static constexpr int kBits = 19;  // 1,048,576 words in 32 MiB
  struct alignas(64) Pair {
    WordSlot often, new_one;
  };
  Pair& pair(uint64_t hash) { return pairs_.span()[hash >> (64 - kBits)]; }

  BigArray<Pair> pairs_{int64_t{1} << kBits};
  uint32_t spared_ = 0;
};

}  // namespace phx
