#include "phalanx/text/tokenizer/bpe_model.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <span>

#include "phalanx/base/error.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

constexpr size_t kLongCacheBits = 17;  // 131,072 words: 8 MiB a thread, beside 32 MiB of short ones
constexpr size_t kBatch = 32;          // words that are cut before the first is looked up
constexpr size_t kShortWord = 16;      // symbols of a word that is merged in registers
constexpr size_t kLongWord = 64;       // symbols; from here on a heap is faster than a scan
constexpr uint32_t kTabledCodes = 0x10000;
constexpr uint32_t kLowRanks = 8192;  // in 256 KiB: a part of a core's own cache

uint64_t next_identity() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

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

// Words that a thread has met. Those that are longer or become more tokens than a WordSlot holds
// have slots of their own, a cache line each.
struct BpeModel::Cache {
  struct alignas(64) LongSlot {
    static constexpr size_t kMaxBytes = 31, kMaxTokens = 7;
    char word[kMaxBytes] = {};
    uint8_t size = 0;
    int32_t ids[kMaxTokens] = {};
    int32_t count = 0;
  };
  static_assert(sizeof(LongSlot) == 64);

  uint64_t owner = 0;
  WordCache words;
  BigArray<LongSlot> long_slots{int64_t{1} << kLongCacheBits};

  LongSlot& long_at(const Pending& pending) {
    const uint64_t hash = pending.word.size() <= kMaxShortWord
                              ? pending.hash
                              : std::hash<std::string_view>()(pending.word);
    return long_slots.span()[hash >> (64 - kLongCacheBits)];
  }
  void clear() {
    words.clear();
    std::fill(long_slots.span().begin(), long_slots.span().end(), LongSlot{});
  }
};

// Collects ids, so that a word costs no check of the vector's capacity.
class BpeModel::Output {
 public:
  explicit Output(std::vector<int32_t>& ids) : ids_(ids) {}
  ~Output() { flush(); }

  // From here on `words` slots may be put.
  void make_room(size_t words) {
    if (size_ + words * kStep > kSize) flush();
  }
  void put(const WordSlot& slot) {  // all of them: cheaper than a loop over the count
    std::memcpy(buffer_ + size_, slot.ids, sizeof slot.ids);
    size_ += slot.count();
  }
  void put(std::span<const int32_t> tokens) {  // takes no room from slots that follow
    if (tokens.size() > kStep) {
      flush();
      ids_.insert(ids_.end(), tokens.begin(), tokens.end());
    } else {
      std::copy(tokens.begin(), tokens.end(), buffer_ + size_);
      size_ += tokens.size();
    }
  }

 private:
  static constexpr size_t kSize = 1024, kStep = WordSlot::kMaxTokens;

  void flush() {
    ids_.insert(ids_.end(), buffer_, buffer_ + size_);
    size_ = 0;
  }

  std::vector<int32_t>& ids_;
  size_t size_ = 0;
  int32_t buffer_[kSize];
};

BpeModel::BpeModel(Vocabulary spelling, Vocabulary keys, const std::vector<Merge>& merges,
                   BpeOptions options)
    : options_(std::move(options)), keys_(std::move(keys)), identity_(next_identity()) {
  vocabulary_ = std::move(spelling);
  if (options_.unknown) unknown_ = keys_.find(*options_.unknown).value_or(-1);
  falls_back_ = options_.byte_fallback;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    const char raw = static_cast<char>(byte);
    byte_ids_[byte] =
        keys_.find(options_.bytes ? std::string_view(&raw, 1) : std::string_view(name))
            .value_or(-1);
  }
  merges_.build(merges);
  if (options_.bytes) {
    byte_ranks_.assign(size_t{256} * 256, MergeTable::kNone);
    for (size_t pair = 0; pair < byte_ranks_.size(); ++pair) {
      const int32_t left = byte_ids_[pair / 256], right = byte_ids_[pair % 256];
      if (left >= 0 && right >= 0) byte_ranks_[pair] = merges_.rank(left, right);
    }
  }
  fill_tables();
}

void BpeModel::fill_tables() {
  if (!options_.bytes && options_.prefix.empty() && options_.suffix.empty()) {
    code_ids_.assign(kTabledCodes, -1);
    for (const auto& [token, id] : keys_.ids()) {
      if (token.empty() || code_length(token[0]) != token.size()) continue;
      size_t at = 0;
      const uint32_t code = next_code(token, at);
      if (code < kTabledCodes) code_ids_[code] = id;
    }
  }
  long_words_.assign(static_cast<size_t>(keys_.size()), false);
  // Where an unknown token is named but missing, encoding fails at the word that needs it.
  if (options_.unknown && unknown_ < 0 && !options_.ignore_merges) return;
  short_words_.reserve(keys_.ids().size());
  std::vector<int32_t> tokens;
  for (const auto& [token, id] : keys_.ids()) {
    tokens.assign(1, id);
    if (token.empty()) continue;
    if (!options_.ignore_merges) {
      tokens.clear();
      split(token, tokens);
      merge(tokens, token);
    }
    if (token.size() > kMaxShortWord) {
      long_words_[static_cast<size_t>(id)] = tokens.size() == 1 && tokens[0] == id;
    } else if (tokens.size() <= WordSlot::kMaxTokens) {
      const char* data = token.data();
      short_words_.add(ShortWord::load(data, token.size(), data + token.size()), tokens.data(),
                       tokens.size());
    }
  }
}

BpeModel::Cache* BpeModel::cache() const {
  if (!use_cache_) return nullptr;
  thread_local Cache cache;
  if (cache.owner != identity_) {
    cache.clear();
    cache.owner = identity_;
  }
  return &cache;
}

// A word that is not where it should be.
void BpeModel::put_word(const Pending& pending, Cache* cache, Output& out) const {
  const std::string_view word = pending.word;
  const bool is_short = word.size() <= kMaxShortWord;
  if (is_short && cache != nullptr) {
    if (const WordSlot* met = cache->words.find_second(pending.key, pending.hash))
      return out.put(*met);
  }
  Cache::LongSlot* slot = nullptr;
  if (cache != nullptr && word.size() <= Cache::LongSlot::kMaxBytes) {
    slot = &cache->long_at(pending);
    if (std::string_view(slot->word, slot->size) == word)
      return out.put(std::span(slot->ids, static_cast<size_t>(slot->count)));
  }
  if (is_short) {
    if (const WordSlot* known = short_words_.find(pending.key, pending.hash)) {
      if (cache != nullptr) cache->words.add(*known, pending.hash);
      return out.put(*known);
    }
  }
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  const auto id = is_short ? std::nullopt : keys_.find(word);
  if (id && long_words_[static_cast<size_t>(*id)]) {
    symbols.push_back(*id);
  } else {
    split(word, symbols);
    merge(symbols, word);
  }
  out.put(symbols);
  if (cache == nullptr) return;
  if (is_short && symbols.size() <= WordSlot::kMaxTokens) {
    cache->words.add(WordSlot(pending.key, symbols.data(), symbols.size()), pending.hash);
  } else if (slot != nullptr && symbols.size() <= Cache::LongSlot::kMaxTokens) {
    std::copy(word.begin(), word.end(), slot->word);
    slot->size = static_cast<uint8_t>(word.size());
    std::copy(symbols.begin(), symbols.end(), slot->ids);
    slot->count = static_cast<int32_t>(symbols.size());
  }
}

// next_word(word) says whether there is another word. Words are cut some ahead of being looked up,
// so that their slots have arrived from memory by then.
template <class NextWord>
void BpeModel::put_all(const char* text_end, std::vector<int32_t>& ids,
                       NextWord&& next_word) const {
  Output out(ids);
  Cache* const met = cache();
  Pending batch[kBatch];
  for (bool more = true; more;) {
    Pending* end = batch;
    for (; end != batch + kBatch; ++end) {
      std::string_view word;
      if (!(more = next_word(word))) break;
      end->word = word;
      if (word.size() > kMaxShortWord) {
        end->key = ShortWord::none();
        end->slot = short_words_.first_place(0);
        continue;
      }
      const ShortWord key = ShortWord::load(word.data(), word.size(), text_end);
      const uint64_t hash = key.hash();
      const WordSlot* slot =
          met != nullptr ? met->words.first_place(hash) : short_words_.first_place(hash);
      __builtin_prefetch(slot);
      end->slot = slot;
      end->key = key;
      end->hash = hash;
    }
    out.make_room(kBatch);
    for (const Pending* pending = batch; pending != end; ++pending) {
      if (pending->slot->holds(pending->key)) {
        out.put(*pending->slot);
      } else {
        put_word(*pending, met, out);
      }
    }
  }
}

void BpeModel::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  bool given = false;
  put_all(word.data() + word.size(), ids, [&](std::string_view& next) {
    next = word;
    return !std::exchange(given, true);
  });
}

void BpeModel::encode_pieces(const Pieces& pieces, std::vector<int32_t>& ids) const {
  if (pieces.size() == 0) return;
  const std::string_view last = pieces[pieces.size() - 1];  // they lie in one text, in order
  size_t i = 0;
  put_all(last.data() + last.size(), ids, [&](std::string_view& next) {
    if (i == pieces.size()) return false;
    next = pieces[i++];
    return true;
  });
}

void BpeModel::encode_words(WordPattern pattern, std::string_view text,
                            std::vector<int32_t>& ids) const {
  for_word_pattern(pattern, [&]<WordPattern kPattern>() {
    size_t at = 0;
    put_all(text.data() + text.size(), ids, [&](std::string_view& next) {
      if (at >= text.size()) return false;
      const size_t end = word_end<kPattern>(text, at);
      next = std::string_view(text.data() + at, end - at);
      at = end;
      return true;
    });
  });
}

void BpeModel::split(std::string_view word, std::vector<int32_t>& symbols) const {
  if (!options_.bytes) return split_characters(word, symbols);
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) symbols.push_back(id);  // as in the original, what has no symbol is left out
  }
}

std::optional<int32_t> BpeModel::symbol(std::string_view word, size_t begin, size_t end) const {
  const std::string_view character = word.substr(begin, end - begin);
  if (!code_ids_.empty()) {
    size_t at = 0;
    const uint32_t code = next_code(character, at);
    if (code < kTabledCodes) {
      if (code_ids_[code] < 0) return std::nullopt;
      return code_ids_[code];
    }
    return keys_.find(character);
  }
  std::string spelled(character);
  if (begin > 0) spelled = options_.prefix + spelled;
  if (end == word.size()) spelled += options_.suffix;
  return keys_.find(spelled);
}

void BpeModel::split_characters(std::string_view word, std::vector<int32_t>& symbols) const {
  bool pending = false;  // an unknown token that may yet grow
  for (size_t begin = 0, end; begin < word.size(); begin = end) {
    end = begin + code_length(word[begin]);
    if (const auto id = symbol(word, begin, end)) {
      if (pending) symbols.push_back(unknown_);
      pending = false;
      symbols.push_back(*id);
      continue;
    }
    std::string spelled(word.substr(begin, end - begin));
    if (begin > 0) spelled = options_.prefix + spelled;
    if (end == word.size()) spelled += options_.suffix;
    const bool fallback = falls_back_ && std::all_of(spelled.begin(), spelled.end(), [&](char c) {
                            return byte_ids_[static_cast<uint8_t>(c)] >= 0;
                          });
    if (fallback) {
      for (const char c : spelled) symbols.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    } else if (options_.unknown) {
      PHX_CHECK(unknown_ >= 0, "the unknown token ", *options_.unknown,
                " is not in the vocabulary, but the text holds ", spelled);
      if (pending && !options_.fuse_unknown) symbols.push_back(unknown_);
      pending = true;
    }
  }
  if (pending) symbols.push_back(unknown_);
}

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
