// Learns a byte-level BPE from texts and writes it as a tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "phalanx/text/tokenizer/word_splitter.h"

namespace phx {

struct BpeTraining {
  std::string tokenizer_json, config_json;  // contents of tokenizer.json, tokenizer_config.json
  int64_t vocab_size = 0, num_merges = 0, num_words = 0;
};

class BpeTrainer {
 public:
  // How text is cut: "gpt2", "llama3", "qwen2" or "o200k".
  explicit BpeTrainer(const std::string& pattern);

  void add(std::string_view text);  // any bytes; counts its words

  // Joins the most frequent pair (the one of the smaller ids among equals) until there are
  // `vocab_size` tokens: special ones first, bytes, then merges. Fewer when no pair occurs twice.
  BpeTraining train(int64_t vocab_size, const std::vector<std::string>& special_tokens) const;

 private:
  WordPattern pattern_;
  std::unordered_map<std::string, int64_t> words_;
};

}  // namespace phx
