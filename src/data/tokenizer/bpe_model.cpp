#include "data/tokenizer/bpe_model.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <span>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace phx {
namespace {

constexpr size_t kCacheBits = 14, kLongCacheBits = 13;  // 16,384 and 8,192 words: 1 MiB a thread
constexpr size_t kBatch = 32;     // words that are cut before the first is looked up
constexpr size_t kLongWord = 64;  // symbols; from here on a heap is faster than a scan
constexpr uint32_t kTabledCodes = 0x10000;

uint64_t next_identity() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

void MergeTable::reserve(size_t pairs) {
  const size_t size = std::bit_ceil(pairs * 2 + 2);
  slots_.assign(size, kEmpty);
  shift_ = 64 - std::countr_zero(size);
}

void MergeTable::add(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
  PHX_CHECK(rank < kMaxRanks, "a BPE should have fewer than ", kMaxRanks, " merges");
  const uint64_t key = uint64_t(uint32_t(left)) << 21 | uint32_t(right);
  size_t at = (key * 0x9E3779B97F4A7C15u) >> shift_;
  while (slots_[at] != kEmpty && slots_[at] >> 22 != key) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = key << 22 | rank;
  if (merged_.size() <= rank) merged_.resize(rank + 1);
  merged_[rank] = merged;
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
  std::vector<WordSlot> slots = std::vector<WordSlot>(size_t{1} << kCacheBits);
  std::vector<LongSlot> long_slots = std::vector<LongSlot>(size_t{1} << kLongCacheBits);

  WordSlot& at(uint64_t hash) { return slots[hash >> (64 - kCacheBits)]; }
  LongSlot& long_at(std::string_view word) {
    return long_slots[std::hash<std::string_view>()(word) >> (64 - kLongCacheBits)];
  }
  void clear() {
    std::fill(slots.begin(), slots.end(), WordSlot{});
    std::fill(long_slots.begin(), long_slots.end(), LongSlot{});
  }
};

// Collects ids so that a word costs no check of the vector's capacity.
class BpeModel::Output {
 public:
  explicit Output(std::vector<int32_t>& ids) : ids_(ids) {}
  ~Output() { flush(); }

  void put(const WordSlot& slot) {  // all three are written: cheaper than a loop over the count
    std::copy_n(slot.ids, WordSlot::kMaxTokens, buffer_ + size_);
    size_ += static_cast<size_t>(slot.count);
    if (size_ > kSize - WordSlot::kMaxTokens) flush();
  }
  void put(std::span<const int32_t> tokens) {
    if (size_ + tokens.size() > kSize - WordSlot::kMaxTokens) flush();
    if (tokens.size() > kSize - WordSlot::kMaxTokens) {
      ids_.insert(ids_.end(), tokens.begin(), tokens.end());
      return;
    }
    std::copy(tokens.begin(), tokens.end(), buffer_ + size_);
    size_ += tokens.size();
  }

 private:
  static constexpr size_t kSize = 1024;

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
  merges_.reserve(merges.size());
  for (const Merge& merge : merges) {
    merges_.add(merge.left, merge.right, merge.rank, merge.merged);
  }
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

inline void BpeModel::put_word(const Pending& pending, Cache* cache, Output& out) const {
  if (pending.word.size() > kMaxShortWord) return put_rare_word(pending, cache, out);
  if (cache != nullptr) {
    const WordSlot& cached = cache->at(pending.hash);
    if (cached.word == pending.key) return out.put(cached);
  }
  if (const WordSlot* known = short_words_.find(pending.key, pending.hash)) {
    if (cache != nullptr) cache->at(pending.hash) = *known;
    return out.put(*known);
  }
  put_rare_word(pending, cache, out);
}

void BpeModel::put_rare_word(const Pending& pending, Cache* cache, Output& out) const {
  const std::string_view word = pending.word;
  if (word.size() > kMaxShortWord) {
    const auto id = keys_.find(word);
    if (id && long_words_[static_cast<size_t>(*id)]) return out.put(std::span(&*id, 1));
  }
  Cache::LongSlot* slot = nullptr;
  if (cache != nullptr && word.size() <= Cache::LongSlot::kMaxBytes) {
    slot = &cache->long_at(word);
    if (std::string_view(slot->word, slot->size) == word) {
      return out.put(std::span(slot->ids, static_cast<size_t>(slot->count)));
    }
  }
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  split(word, symbols);
  merge(symbols, word);
  out.put(symbols);
  if (cache == nullptr) return;
  if (word.size() <= kMaxShortWord && symbols.size() <= WordSlot::kMaxTokens) {
    WordSlot& cached = cache->at(pending.hash);
    cached.word = pending.key;
    std::copy(symbols.begin(), symbols.end(), cached.ids);
    cached.count = static_cast<int32_t>(symbols.size());
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
  Cache* const known = cache();
  Pending batch[kBatch];
  for (bool more = true; more;) {
    size_t count = 0;
    while (count < kBatch && (more = next_word(batch[count].word))) {
      Pending& pending = batch[count++];
      const std::string_view word = pending.word;
      if (word.size() > kMaxShortWord) continue;
      pending.key = ShortWord::load(word.data(), word.size(), text_end);
      pending.hash = pending.key.hash();
      if (known != nullptr) {
        __builtin_prefetch(&known->at(pending.hash));
      } else {
        short_words_.prefetch(pending.hash);
      }
    }
    for (size_t i = 0; i < count; ++i) put_word(batch[i], known, out);
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
  if (size > kLongWord) return merge_long(symbols);
  uint32_t ranks[kLongWord];  // of the pair that begins at each symbol
  if (options_.bytes && size == word.size()) {
    for (size_t i = 0; i + 1 < size; ++i) {
      ranks[i] = byte_ranks_[size_t{static_cast<uint8_t>(word[i])} * 256 +
                             static_cast<uint8_t>(word[i + 1])];
    }
  } else {
    for (size_t i = 0; i + 1 < size; ++i) ranks[i] = merges_.rank(symbols[i], symbols[i + 1]);
  }
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
