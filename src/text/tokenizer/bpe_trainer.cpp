#include "phalanx/text/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <queue>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

using Json = nlohmann::ordered_json;

WordPattern pattern_of(const std::string& name) {
  if (name == "gpt2") return WordPattern::gpt2;
  if (name == "llama3") return WordPattern::cl100k;
  if (name == "qwen2") return WordPattern::qwen2;
  PHX_CHECK(name == "o200k", "the pattern ", name, " should be gpt2, llama3, qwen2 or o200k");
  return WordPattern::o200k;
}

struct Word {
  std::vector<int32_t> symbols;
  int64_t count;
};

using PairKey = uint64_t;
PairKey key_of(int32_t left, int32_t right) {
  return PairKey(uint32_t(left)) << 32 | uint32_t(right);
}

// Counts of adjacent pairs, which words they occur in, and the merges made so far.
class PairCounter {
 public:
  explicit PairCounter(std::vector<Word> words) : words_(std::move(words)) {
    for (size_t i = 0; i < words_.size(); ++i) change_pairs(i, +1);
    for (const auto& [pair, entry] : pairs_) queue_.push({entry.count, pair});
  }

  // The most frequent pair, 0 count when none occurs twice.
  std::pair<PairKey, int64_t> best() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      const auto found = pairs_.find(top.pair);
      const int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count == top.count)
        return count >= 2 ? std::pair{top.pair, count} : std::pair{PairKey(0), int64_t{0}};
      queue_.pop();  // stale: the pair's true count is put back
      if (count > 0) queue_.push({count, top.pair});
    }
    return {0, 0};
  }

  void merge(PairKey pair, int32_t merged) {
    const auto left = static_cast<int32_t>(pair >> 32), right = static_cast<int32_t>(pair);
    std::vector<uint32_t> where = std::move(pairs_[pair].words);
    std::sort(where.begin(), where.end());
    where.erase(std::unique(where.begin(), where.end()), where.end());
    for (const uint32_t i : where) {
      change_pairs(i, -1);
      std::vector<int32_t>& symbols = words_[i].symbols;
      size_t out = 0;
      for (size_t at = 0; at < symbols.size(); ++at) {
        const bool both =
            at + 1 < symbols.size() && symbols[at] == left && symbols[at + 1] == right;
        symbols[out++] = both ? merged : symbols[at];
        at += both;
      }
      symbols.resize(out);
      change_pairs(i, +1);
      for (size_t at = 0; at + 1 < symbols.size(); ++at) {
        if (symbols[at] != merged && symbols[at + 1] != merged) continue;
        const PairKey fresh = key_of(symbols[at], symbols[at + 1]);
        queue_.push({pairs_[fresh].count, fresh});
      }
    }
    pairs_.erase(pair);
  }

 private:
  struct Entry {
    int64_t count = 0;
    std::vector<uint32_t> words;  // may hold words that no longer have the pair
  };
  struct Candidate {
    int64_t count;
    PairKey pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void change_pairs(size_t word, int sign) {
    const Word& w = words_[word];
    for (size_t at = 0; at + 1 < w.symbols.size(); ++at) {
      Entry& entry = pairs_[key_of(w.symbols[at], w.symbols[at + 1])];
      entry.count += sign * w.count;
      const auto index = static_cast<uint32_t>(word);
      if (sign > 0 && (entry.words.empty() || entry.words.back() != index)) {
        entry.words.push_back(index);
      }
    }
  }

  std::vector<Word> words_;
  std::unordered_map<PairKey, Entry> pairs_;
  std::priority_queue<Candidate> queue_;
};

std::string spelled(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) append_code(text, byte_to_code(static_cast<uint8_t>(c)));
  return text;
}

Json pre_tokenizer(WordPattern pattern) {
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", pattern == WordPattern::gpt2}};
  if (pattern == WordPattern::gpt2) return bytes;
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", pattern_text(pattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
}

}  // namespace

BpeTrainer::BpeTrainer(const std::string& pattern) : pattern_(pattern_of(pattern)) {}

void BpeTrainer::add(std::string_view text) {
  std::string storage;
  const std::string_view valid = valid_utf8(text, storage);
  for_word_pattern(pattern_, [&]<WordPattern kPattern>() {
    for (size_t at = 0; at < valid.size();) {
      const size_t end = word_end<kPattern>(valid, at);
      ++words_[std::string(valid.substr(at, end - at))];
      at = end;
    }
  });
}

BpeTraining BpeTrainer::train(int64_t vocab_size,
                              const std::vector<std::string>& special_tokens) const {
  const auto first = static_cast<int32_t>(special_tokens.size());
  PHX_CHECK(vocab_size >= first + 256, "--vocab-size ", vocab_size, " should be at least ",
            first + 256, ": 256 bytes and the special tokens");
  std::vector<Word> words;
  for (const auto& [text, count] : words_) {
    Word word{.symbols = {}, .count = count};
    for (const char c : text) word.symbols.push_back(first + static_cast<uint8_t>(c));
    words.push_back(std::move(word));
  }
  std::vector<std::string> tokens = special_tokens;  // by id; bytes as they are
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  Json merges = Json::array();
  PairCounter counter(std::move(words));
  while (static_cast<int64_t>(tokens.size()) < vocab_size) {
    const auto [pair, count] = counter.best();
    if (count == 0) break;
    const std::string left = tokens[pair >> 32], right = tokens[pair & 0xFFFFFFFFu];
    merges.push_back(Json::array({spelled(left), spelled(right)}));
    counter.merge(pair, static_cast<int32_t>(tokens.size()));
    tokens.push_back(left + right);
  }

  Json vocabulary = Json::object(), added = Json::array();
  for (size_t id = 0; id < tokens.size(); ++id) {
    const bool special = id < special_tokens.size();
    vocabulary[special ? tokens[id] : spelled(tokens[id])] = id;
    if (!special) continue;
    added.push_back({{"id", id},
                     {"content", tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json decoder = {{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", true},
                        {"use_regex", false}};
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", pre_tokenizer(pattern_)},
                     {"post_processor", nullptr},
                     {"decoder", decoder},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false},
                       {"vocab", vocabulary},
                       {"merges", merges}}}};
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (!special_tokens.empty()) config["eos_token"] = special_tokens[0];
  return {.tokenizer_json = json_text(json, 1),
          .config_json = json_text(config, 1),
          .vocab_size = static_cast<int64_t>(tokens.size()),
          .num_merges = static_cast<int64_t>(merges.size()),
          .num_words = static_cast<int64_t>(words_.size())};
}

}  // namespace phx
