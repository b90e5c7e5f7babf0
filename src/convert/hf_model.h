// The door of this room: a Hugging Face folder as one of our models, and one of our models as such
// a folder.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/convert/hf_config.h"
#include "phalanx/convert/hf_folder.h"
#include "phalanx/convert/hf_writer.h"

namespace phx {

// Opened, not read: weights come when they are asked for.
struct HfModel {
  // Checks that every tensor of the model is there, in its shape, and no other.
  // `most_ahead`: of the layers for multi-token prediction no more than these.
  explicit HfModel(const Path& folder, std::optional<int64_t> most_ahead = {});

  Path folder;
  HfConfig config;
  std::shared_ptr<const TensorSource> tensors;  // under Megatron's names
  // Tied models may hold the head again. It must be the embedding, number by number; reads both.
  void check_tied_head() const;

 private:
  std::shared_ptr<const TensorSource> files_;  // under their own names
};

HfConfig read_hf_config(const Path& folder);

struct HfExport {
  TransformerConfig model;
  const Family* family = nullptr;  // null: the one that can say the model
  // A folder whose tokenizer, generation settings and further keys of config.json go along.
  std::optional<Path> companions;
  std::optional<Path> tokenizer;  // without companions: a folder whose tokenizer goes along
  int64_t max_shard_bytes = HfWriteOptions{}.max_shard_bytes;
  std::optional<DType> dtype;  // none: as the weights are
  bool replace = false;        // a folder that is there already
};

// The model's tensors among those of `ours` (Megatron's names) as a Hugging Face folder. Returns
// the family.
const Family& export_hf(const Path& folder, std::shared_ptr<const TensorSource> ours,
                        const HfExport& what);

// "bfloat16"; an error for what torch has no name of.
std::string torch_dtype_name(DType dtype);

}  // namespace phx
