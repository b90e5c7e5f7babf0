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

#include "phalanx/text/tokenizer/merge_table.h"
#include "phalanx/text/tokenizer/token_model.h"
#include "phalanx/text/tokenizer/word_table.h"

namespace phx {

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
