// Writes the weights of any source as Megatron's torch_dist, in Megatron's keys: PyTorch's own
// reader of distributed checkpoints loads it.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"
#include "checkpoint/tensor_source.h"

namespace phx {

struct TorchDistWriteOptions {
  int64_t iteration = 0;
  // The run's arguments as a JSON object, which Megatron finds as its own `args`; empty: none.
  std::string args = {};
  // A new .distcp begins when one has grown to this.
  int64_t file_bytes = int64_t{4} << 30;
};

// Into `folder` (DIR/iter_0000100), which must not hold a checkpoint yet. Tensors are streamed: a
// few tens of megabytes are in memory at a time. Names that begin with "optimizer." are not
// written. metadata.json comes last: without it a folder is no checkpoint.
void write_torch_dist(const TensorSource& source, const Path& folder,
                      const TorchDistWriteOptions& options = {});

}  // namespace phx
