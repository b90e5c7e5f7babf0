// Writes a Hugging Face folder: weights in shards of safetensors with their index, config.json, and
// the files that go with them. The folder appears under its name, or takes the place of the one
// that is there, when it is complete and on disk. Memory: a slab of one tensor.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

struct HfWriteOptions {
  int64_t max_shard_bytes = 5'000'000'000;  // a tensor larger than this has a shard of its own
  std::optional<DType> dtype;               // none: as they are
  std::set<std::string> own_types;          // these stay as they are whatever `dtype` is
  std::vector<Path> companions;             // copied beside the weights
  bool replace = false;                     // what is there under this name; otherwise an error
  Disk* disk = &Disk::real();
};

// "5GB", "500MB", "2GiB": as transformers writes sizes.
int64_t parse_size(const std::string& text);

// `order`: the names of `source`'s tensors in the order in which they are written.
void write_hf_folder(const Path& folder, const TensorSource& source,
                     const std::vector<std::string>& order, const nlohmann::json& config,
                     const HfWriteOptions& options);

}  // namespace phx
