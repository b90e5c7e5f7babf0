#include "data/tokenizer/bpe_model.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace phx {
namespace {

constexpr size_t kCacheBits = 15;  // 32,768 words, 1 MiB a thread
constexpr size_t kLongWord = 64;   // symbols; from here on a heap is faster than a scan
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

struct BpeModel::Cache {
  uint64_t owner = 0;
  std::vector<WordSlot> slots = std::vector<WordSlot>(size_t{1} << kCacheBits);

  WordSlot& at(uint64_t hash) { return slots[hash >> (64 - kCacheBits)]; }
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
  void put(const std::vector<int32_t>& tokens) {
    flush();
    ids_.insert(ids_.end(), tokens.begin(), tokens.end());
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

BpeModel::BpeModel(Vocabulary spelling, const Vocabulary& keys, const std::vector<Merge>& merges,
                   BpeOptions options)
    : options_(std::move(options)), keys_(keys), identity_(next_identity()) {
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
      merge(tokens);
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
    std::fill(cache.slots.begin(), cache.slots.end(), WordSlot{});
    cache.owner = identity_;
  }
  return &cache;
}

inline void BpeModel::put_word(std::string_view word, const char* text_end, Cache* cache,
                               Output& out) const {
  WordSlot* cached = nullptr;
  ShortWord key;
  if (word.size() <= kMaxShortWord) {
    key = ShortWord::load(word.data(), word.size(), text_end);
    const uint64_t hash = key.hash();
    if (cache != nullptr) {
      cached = &cache->at(hash);
      if (cached->word == key) return out.put(*cached);
    }
    if (const WordSlot* known = short_words_.find(key, hash)) {
      if (cached != nullptr) *cached = *known;
      return out.put(*known);
    }
  } else if (const auto id = keys_.find(word); id && long_words_[static_cast<size_t>(*id)]) {
    return out.put(std::vector<int32_t>{*id});
  }
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  split(word, symbols);
  merge(symbols);
  if (cached != nullptr && symbols.size() <= WordSlot::kMaxTokens) {
    cached->word = key;
    std::copy(symbols.begin(), symbols.end(), cached->ids);
    cached->count = static_cast<int32_t>(symbols.size());
  }
  out.put(symbols);
}

template <class Each>
void BpeModel::put_all(std::vector<int32_t>& ids, Each&& each) const {
  Output out(ids);
  each(cache(), out);
}

void BpeModel::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  put_all(ids, [&](Cache* cache, Output& out) {
    put_word(word, word.data() + word.size(), cache, out);
  });
}

void BpeModel::encode_pieces(const Pieces& pieces, std::vector<int32_t>& ids) const {
  put_all(ids, [&](Cache* cache, Output& out) {
    if (pieces.size() == 0) return;
    const std::string_view last = pieces[pieces.size() - 1];
    const char* end = last.data() + last.size();  // pieces lie in one text, in order
    for (size_t i = 0; i < pieces.size(); ++i) put_word(pieces[i], end, cache, out);
  });
}

void BpeModel::encode_words(WordPattern pattern, std::string_view text,
                            std::vector<int32_t>& ids) const {
  for_word_pattern(pattern, [&]<WordPattern kPattern>() {
    put_all(ids, [&](Cache* cache, Output& out) {
      const char* text_end = text.data() + text.size();
      for (size_t at = 0; at < text.size();) {
        const size_t end = word_end<kPattern>(text, at);
        put_word(text.substr(at, end - at), text_end, cache, out);
        at = end;
      }
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

void BpeModel::merge(std::vector<int32_t>& symbols) const {
  size_t size = symbols.size();
  if (size < 2) return;
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
