// Writes any source as Megatron's torch_dist, in Megatron's keys: Megatron loads it, and so does
// PyTorch's own reader of distributed checkpoints.
#pragma once

#include <cstdint>
#include <string>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

struct TorchDistWriteOptions {
  int64_t iteration = 0;
  // The run's arguments as a JSON object, which Megatron finds as its own `args`; empty: none.
  std::string args = {};
  // Further replicated state, a JSON object in the form of torch_object.h; empty: none.
  std::string common = {};
  // Rows of embedding and output layer, the last ones zero, if they are more than there are.
  int64_t padded_vocab_size = 0;
  // Also optimizer.exp_avg.*, optimizer.exp_avg_sq.* and optimizer.master.* of every tensor, all in
  // fp32, as state that Megatron can load under any layout (fully reshardable).
  bool optimizer = false;
  // Whether layers that are all alike share their keys, along a first axis. Megatron looks for them
  // one by one where --moe-layer-freq is a list or more than 1.
  bool stack_layers = true;
  // A new .distcp begins when one has grown to this.
  int64_t file_bytes = int64_t{4} << 30;
};

// Into `folder` (DIR/iter_0000100), which must not hold a checkpoint yet. Tensors are streamed: a
// few tens of megabytes are in memory at a time. metadata.json comes last: without it a folder is
// no checkpoint.
void write_torch_dist(const TensorSource& source, const Path& folder,
                      const TorchDistWriteOptions& options = {});

}  // namespace phx
