// Writes a Hugging Face folder: weights in shards of safetensors with their index, config.json, and
// the files that go with them. The folder appears under its name when it is complete. Memory: a
// slab of one tensor.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/tensor_source.h"

namespace phx {

struct HfWriteOptions {
  int64_t max_shard_bytes = 5'000'000'000;  // a tensor larger than this has a shard of its own
  std::optional<DType> dtype;               // none: as they are
  std::vector<Path> companions;             // copied beside the weights
  bool replace = false;                     // what is there under this name; otherwise an error
};

// "5GB", "500MB", "2GiB": as transformers writes sizes.
int64_t parse_size(const std::string& text);

// `order`: the names of `source`'s tensors in the order in which they are written.
void write_hf_folder(const Path& folder, const TensorSource& source,
                     const std::vector<std::string>& order, const nlohmann::json& config,
                     const HfWriteOptions& options);

// f(box, of at most about `bytes`) for slabs of rows that make up the tensor.
template <class F>
void for_slabs(const TensorInfo& info, int64_t bytes, F&& f) {
  if (info.shape.empty()) {
    f(Box{});
    return;
  }
  int64_t a_row = size_of(info.dtype);
  for (size_t i = 1; i < info.shape.size(); ++i) a_row *= info.shape[i];
  const int64_t rows = info.shape[0], step = a_row > 0 ? std::max<int64_t>(1, bytes / a_row) : rows;
  for (int64_t row = 0; row < rows; row += step) {
    Box box{std::vector<int64_t>(info.shape.size(), 0), info.shape};
    box.begin[0] = row;
    box.size[0] = std::min(step, rows - row);
    f(box);
  }
}

}  // namespace phx
