// tiktoken's vocabularies: byte strings whose rank is their order of merging. Megatron's files (a
// JSON list) and rank files (a line "base64 rank" each) have special tokens before the ranks;
// Mistral's tekken.json carries its own pattern and sizes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "phalanx/text/tokenizer.h"

namespace phx {

struct RankOptions {
  std::string pattern;                // how text is cut into words
  std::vector<std::string> specials;  // ids 0.., before the ranks
  int64_t vocab_size = 0;             // specials and ranks together; ranks beyond it are left out
  bool find_specials = true;          // special tokens are recognised in text
};

// `ranks`: tokens in order of their rank; an empty one is left out.
std::unique_ptr<const Tokenizer> make_rank_tokenizer(const std::vector<std::string>& ranks,
                                                     const RankOptions& options,
                                                     const std::string& source);

// As Megatron's TikTokenizer: `pattern` is v1 or v2.
std::unique_ptr<const Tokenizer> load_tiktoken(const std::string& path, const std::string& pattern,
                                               int64_t num_special_tokens, int64_t vocab_size);
// `vocab_size` cuts the ranks; without it the file's own size does.
std::unique_ptr<const Tokenizer> load_tekken(const std::string& path,
                                             std::optional<int64_t> vocab_size = std::nullopt);
// By what the file holds, whatever it is called: an object with a pattern and a list of ranks.
bool is_tekken(const std::string& path);

}  // namespace phx
