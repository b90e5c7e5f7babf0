// Where tokens come from and how they become samples.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/option_traits.h"
#include "phalanx/data/batch_order.h"
#include "phalanx/text/tokenizer_config.h"

namespace phx {

struct Rule;

struct DataConfig : TokenizerConfig {
  bool mock_data = false;
  std::string dataset;  // a name of the catalogue (data/dataset.h)
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

  // Fractions for training, validation and test, from --split; they add up to 1.
  std::array<double, 3> split_shares() const;

  template <class Field>
  void each(Field&& field) {
    field("mock-data", mock_data, "train on made-up tokens");
    field("dataset", dataset, "train on a dataset of the program's catalogue", Own{},
          DefaultIs{"none: the data flags say what is trained on"});
    field("token-file", token_file, "file of raw token ids, with the suffix .u16 or .i32", Own{});
    field("data-path", data_path,
          "prefix of the token files; for a blend, weight and prefix of each");
    field("train-data-path", train_data_path, "the same for training alone");
    field("valid-data-path", valid_data_path, "the same for validation alone");
    field("test-data-path", test_data_path, "the same for the test alone");
    field("data-args-path", data_args_path, "a file with the words of --data-path");
    field("per-split-data-args-path", per_split_data_args_path,
          "a JSON file with the lists train, valid and test, each like --data-path");
    field("split", split,
          "shares of --data-path for training, validation and test: up to three numbers with any "
          "separators");
    field("data-cache-path", data_cache_path, "folder for the sample indices",
          DefaultIs{"phalanx_index_cache beside the data"});
    field("mid-level-dataset-surplus", mid_level_dataset_surplus,
          "how much longer than needed each dataset of a blend is made", InRange{0, 1});
    field("dataloader-type", dataloader_type,
          "samples in the dataset's order, or in epochs shuffled by Megatron's cyclic sampler",
          Refuses{{{"external", "there is no Python program to bring batches"}}});
    field("data-sharding", data_sharding,
          "cyclic: shuffle all samples together, not one part per rank");
    field("reset-position-ids", reset_position_ids, "restart positions in every document");
    field("reset-attention-mask", reset_attention_mask, "do not attend across documents");
    field("eod-mask-loss", eod_mask_loss, "no loss where the input is an end-of-document token");
    field("dataloader-inter-document-masking", dataloader_inter_document_masking,
          "no attention across document boundaries, and positions restart there");
    TokenizerConfig::each(field);
  }
};

std::vector<Rule> data_rules();

}  // namespace phx
