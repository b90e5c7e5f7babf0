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
constexpr uint32_t kTabledCodes = 0x10000;

uint64_t next_identity() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

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

}  // namespace phx
