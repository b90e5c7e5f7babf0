// Where tokens come from and how they become samples.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/option_traits.h"
#include "data/batch_order.h"

namespace phx {

struct Rule;

// Why WordPiece is refused.
inline constexpr const char* kWordPiece =
    "it is the tokenizer of BERT and T5, which are other models than the GPT family trained here";

struct DataConfig {
  bool mock_data = false;
  std::string token_file;
  std::vector<std::string> data_path;
  std::vector<std::string> train_data_path;
  std::vector<std::string> valid_data_path;
  std::vector<std::string> test_data_path;
  std::string data_args_path;
  std::string per_split_data_args_path;
  std::string split = "969, 30, 1";
  std::string data_cache_path;
  double mid_level_dataset_surplus = 0.005;
  DataloaderType dataloader_type = DataloaderType::single;
  bool data_sharding = true;
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
  bool dataloader_inter_document_masking = false;

  std::string tokenizer_type;
  std::string tokenizer_model;
  bool tokenizer_hf_include_special_tokens = true;
  std::string vocab_file;
  std::string merge_file;
  std::string tiktoken_pattern;
  int64_t tiktoken_num_special_tokens = 1000;
  std::optional<int64_t> null_tokenizer_eod_id;
  std::optional<int64_t> null_tokenizer_pad_id;

  // Fractions for training, validation and test, from --split; they add up to 1.
  std::array<double, 3> split_shares() const;

  template <class Field>
  void each(Field&& field) {
    field("mock-data", mock_data, "train on made-up tokens");
    field("token-file", token_file, "raw token ids, in a file called .u16 or .i32", Own{});
    field("data-path", data_path,
          "token files without extension, each after its weight if several");
    field("train-data-path", train_data_path, "the same for training alone");
    field("valid-data-path", valid_data_path, "the same for validation alone");
    field("test-data-path", test_data_path, "the same for the test alone");
    field("data-args-path", data_args_path, "a file with the words of --data-path");
    field("per-split-data-args-path", per_split_data_args_path,
          "a JSON file with the lists train, valid and test, each like --data-path");
    field("split", split,
          "shares of --data-path for training, validation and test: up to three numbers, whatever "
          "stands between them");
    field("data-cache-path", data_cache_path, "folder for the sample indices",
          DefaultIs{"phalanx_index_cache beside the data"});
    field("mid-level-dataset-surplus", mid_level_dataset_surplus,
          "how much longer than needed each dataset of a blend is made", InRange{0, 1});
    field("dataloader-type", dataloader_type,
          "samples in the dataset's order, or in epochs shuffled by Megatron's cyclic sampler",
          Refuses{{{"external", "there is no Python program to bring batches"}}});
    field("data-sharding", data_sharding,
          "cyclic: shuffle all samples together, not a part a rank");
    field("reset-position-ids", reset_position_ids, "count positions anew in every document");
    field("reset-attention-mask", reset_attention_mask, "do not attend across documents");
    field("eod-mask-loss", eod_mask_loss, "no loss where the input is an end-of-document token");
    field("dataloader-inter-document-masking", dataloader_inter_document_masking,
          "keep documents apart where they were joined: attention and positions begin anew");
    each_tokenizer_field(field);
  }

  // Those that say which tokenizer it is: commands that need nothing else take them alone.
  template <class Field>
  void each_tokenizer_field(Field&& field) {
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
          "HuggingFaceTokenizer: documents without what the tokenizer puts around a text "
          "(<|begin_of_text|>, <s>)",
          OffSwitch{"tokenizer-hf-no-include-special-tokens"});
    field("vocab-file", vocab_file, "GPT-2 BPE: vocab.json");
    field("merge-file", merge_file, "GPT-2 BPE: merges.txt");
    field("tiktoken-pattern", tiktoken_pattern, "TikToken: how text is cut into words",
          OneOf{{"v1", "v2"}});
    field("tiktoken-num-special-tokens", tiktoken_num_special_tokens,
          "TikToken: ids kept for special tokens", NotNegative{});
    field("null-tokenizer-eod-id", null_tokenizer_eod_id, "no tokenizer: id that ends a document",
          NotNegative{}, DefaultIs{"the last of the vocabulary"});
    field("null-tokenizer-pad-id", null_tokenizer_pad_id, "no tokenizer: id of padding",
          AtLeast{-1}, DefaultIs{"-1, no padding"});
  }
};

std::vector<Rule> data_rules();

}  // namespace phx
