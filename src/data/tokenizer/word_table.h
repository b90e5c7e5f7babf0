// A hash table of short words and the tokens they become: the key lies in the slot, so that a
// lookup touches one cache line. It serves the whole vocabulary (open addressing) and, with a fixed
// number of slots that overwrite each other, as the cache of words that a thread has met.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace phx {

inline constexpr size_t kMaxShortWord = 15;

// Up to 15 bytes, zeros after them, and the length in the last byte.
struct ShortWord {
  uint64_t low = 0, high = 0;

  bool operator==(const ShortWord&) const = default;

  // Bytes from `data` on may be read up to `end` of the text that the word lies in.
  static ShortWord load(const char* data, size_t size, const char* end) {
    ShortWord word;
    if (end - data >= 16) {
      std::memcpy(&word, data, 16);
      word.low &= kLowMask[size];
      word.high &= kHighMask[size];
    } else {
      std::memcpy(&word, data, size);
    }
    word.high |= uint64_t{size} << 56;
    return word;
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

struct alignas(32) WordSlot {
  static constexpr size_t kMaxTokens = 3;
  ShortWord word;  // length 0: an empty slot
  int32_t ids[kMaxTokens] = {};
  int32_t count = 0;
};
static_assert(sizeof(WordSlot) == 32);

class WordTable {
 public:
  void reserve(size_t words) { slots_.assign(std::bit_ceil(words * 2 + 2), {}); }

  // Words are added once, up to as many as were reserved.
  void add(const ShortWord& word, const int32_t* ids, size_t count) {
    size_t at = word.hash() & mask();
    while (slots_[at].word.high != 0) at = (at + 1) & mask();
    slots_[at].word = word;
    std::copy_n(ids, count, slots_[at].ids);
    slots_[at].count = static_cast<int32_t>(count);
  }
  void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & mask()]); }
  const WordSlot* find(const ShortWord& word, uint64_t hash) const {  // null when there is none
    for (size_t at = hash & mask(); slots_[at].word.high != 0; at = (at + 1) & mask()) {
      if (slots_[at].word == word) return &slots_[at];
    }
    return nullptr;
  }

 private:
  size_t mask() const { return slots_.size() - 1; }

  std::vector<WordSlot> slots_ = std::vector<WordSlot>(2);
};

}  // namespace phx
