// Which tokenizer it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "phalanx/base/option_traits.h"

namespace phx {

// Why WordPiece is refused.
inline constexpr const char* kWordPiece =
    "it is the tokenizer of BERT and T5, which are other models than the GPT family trained here";

struct TokenizerConfig {
  std::string tokenizer_type;
  std::string tokenizer_model;
  bool tokenizer_hf_include_special_tokens = true;
  std::string vocab_file;
  std::string merge_file;
  std::string tiktoken_pattern;
  int64_t tiktoken_num_special_tokens = 1000;
  std::optional<int64_t> null_tokenizer_eod_id;
  std::optional<int64_t> null_tokenizer_pad_id;

  template <class Field>
  void each(Field&& field) {
    field("tokenizer-type", tokenizer_type,
          "kind of tokenizer; ByteTokenizer is Phalanx's own: a token is a byte",
          OneOf{{"ByteTokenizer", "GPT2BPETokenizer", "SentencePieceTokenizer",
                 "GPTSentencePieceTokenizer", "HuggingFaceTokenizer", "Llama2Tokenizer",
                 "TikTokenizer", "NullTokenizer"}},
          Refuses{{{"BertWordPieceLowerCase", kWordPiece},
                   {"BertWordPieceCase", kWordPiece},
                   {"MultimodalTokenizer", "multimodal models are not in this build"},
                   {"NullMultimodalTokenizer", "multimodal models are not in this build"},
                   {"SFTTokenizer", "--sft goes with the type of the tokenizer itself"}}});
    field("tokenizer-model", tokenizer_model, "file or folder of the tokenizer");
    field("tokenizer-hf-include-special-tokens", tokenizer_hf_include_special_tokens,
          "HuggingFaceTokenizer: do not add the tokenizer's special tokens to documents "
          "(<|begin_of_text|>, <s>)",
          OffSwitch{"tokenizer-hf-no-include-special-tokens"});
    field("vocab-file", vocab_file, "GPT-2 BPE: vocab.json");
    field("merge-file", merge_file, "GPT-2 BPE: merges.txt");
    field("tiktoken-pattern", tiktoken_pattern, "TikToken: how text is split into words",
          OneOf{{"v1", "v2"}});
    field("tiktoken-num-special-tokens", tiktoken_num_special_tokens,
          "TikToken: ids kept for special tokens", NotNegative{});
    field("null-tokenizer-eod-id", null_tokenizer_eod_id, "no tokenizer: id that ends a document",
          NotNegative{}, DefaultIs{"the last of the vocabulary"});
    field("null-tokenizer-pad-id", null_tokenizer_pad_id, "no tokenizer: id of padding",
          AtLeast{-1}, DefaultIs{"-1, no padding"});
  }
};

}  // namespace phx
