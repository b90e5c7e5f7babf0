// Byte-pair encoding: the symbols of a word are joined pair by pair, the pair of the lowest rank
// first and the leftmost of equals. Symbols are bytes, or characters with what a tokenizer.json may
// ask for (unknown tokens, byte fallback, prefixes and suffixes).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "phalanx/base/big_array.h"
#include "phalanx/text/tokenizer/token_model.h"
#include "phalanx/text/tokenizer/word_table.h"

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

struct BpeOptions {
  bool bytes = false;          // symbols are bytes
  bool ignore_merges = false;  // a word that is a token is that token, whatever merges say
  bool byte_fallback = false, fuse_unknown = false;
  std::optional<std::string> unknown;
  std::string prefix, suffix;  // of symbols inside of a word, of the last symbol
};

class BpeModel final : public TokenModel {
 public:
  using Merge = BpeMerge;
  // `spelling`: tokens as they are shown; `keys`: the text each stands for, by which words are
  // found (the same but for bytes, where tokens are spelled in printable characters).
  BpeModel(Vocabulary spelling, Vocabulary keys, const std::vector<Merge>& merges,
           BpeOptions options);

  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override;
  void encode_pieces(const Pieces& pieces, std::vector<int32_t>& ids) const override;
  void encode_words(WordPattern pattern, std::string_view text,
                    std::vector<int32_t>& ids) const override;
  const char* name() const override { return "BPE"; }

  // Words met before are looked up instead of encoded again (the default). For measurements.
  void use_word_cache(bool use) const { use_cache_ = use; }

 private:
  struct Cache;
  class Output;

  // A word on its way: where it is, and if it is short, its key and the slot where it should be.
  struct Pending {
    const WordSlot* slot;
    ShortWord key;
    uint64_t hash;
    std::string_view word;
  };

  Cache* cache() const;  // null when it is not used
  template <class NextWord>
  void put_all(const char* text_end, std::vector<int32_t>& ids, NextWord&& next_word) const;
  void put_word(const Pending& pending, Cache* cache, Output& out) const;
  void fill_tables();
  void split(std::string_view word, std::vector<int32_t>& symbols) const;
  void split_characters(std::string_view word, std::vector<int32_t>& symbols) const;
  std::optional<int32_t> symbol(std::string_view word, size_t begin, size_t end) const;
  void merge(std::vector<int32_t>& symbols, std::string_view word) const;
  void merge_short(std::vector<int32_t>& symbols, std::string_view word) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  BpeOptions options_;
  int32_t unknown_ = -1;
  int32_t byte_ids_[256];  // of bytes, or of <0x00>..<0xFF> for the fallback; -1: there is none
  bool falls_back_ = false;
  MergeTable merges_;
  std::vector<uint32_t> byte_ranks_;  // of pairs of bytes, by 256 * left + right
  WordTable short_words_;             // what tokens of up to 15 bytes become as words
  std::vector<bool> long_words_;      // ids of longer tokens that a word becomes as a whole
  std::vector<int32_t> code_ids_;     // of characters below U+10000, where symbols have no affixes
  Vocabulary keys_;
  uint64_t identity_;  // of this model among all of a process, for the caches of threads
  mutable bool use_cache_ = true;
};

}  // namespace phx
