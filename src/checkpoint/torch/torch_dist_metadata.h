// The .metadata file of PyTorch's distributed checkpoints: which tensors and byte objects there
// are, and which file holds which chunk of them.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/strided_copy.h"

namespace phx {

struct TorchDistPlace {
  std::string file;  // "__0_1.distcp"
  int64_t offset = 0, length = 0;
};

struct TorchDistChunk {
  Box box;
  TorchDistPlace place;
};

struct TorchDistTensor {
  TensorInfo info;
  std::vector<TorchDistChunk> chunks;  // every element is in exactly one
};

// Keys of several optimizers in a chain ("chained_1.optimizer.distributed.dp_group_idx_0..") stand
// under "optimizer." too here: "optimizer.chained_1.distributed.dp_group_idx_0..". State with the
// model's shapes needs no such number: "optimizer.state.exp_avg..".
struct TorchDistMetadata {
  std::map<std::string, TorchDistTensor> tensors;
  std::map<std::string, TorchDistPlace> objects;  // of bytes

  static TorchDistMetadata read(const Path& file);
  // Trusts nothing; `file` names it in errors.
  static TorchDistMetadata parse(std::span<const std::byte> bytes, const std::string& file);
};

}  // namespace phx
