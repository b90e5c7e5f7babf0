// Writes any source as a checkpoint of Megatron-FSDP (--ckpt-format fsdp_dtensor), under any number
// of ranks: Megatron loads it, and so does PyTorch's own reader of distributed checkpoints.
#pragma once

#include <cstdint>
#include <string>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

struct FsdpWriteOptions {
  int64_t iteration = 0;
  // As of torch_dist_writer.h: the run's arguments, and its replicated state, of which the groups
  // of the optimizer and the schedules are taken.
  std::string args = {};
  std::string common = {};
  int64_t padded_vocab_size = 0;
  // Also optimizer.exp_avg.*, optimizer.exp_avg_sq.*; weights are optimizer.master.* then. All are
  // fp32, as are the weights without it.
  bool optimizer = false;
  // Whether Megatron's model computes in 16 bits: it stands within one wrapper more then, which
  // the optimizer's keys name.
  bool in_16_bits = false;
  int64_t file_bytes = int64_t{4} << 30;
};

// Into `folder` (DIR/iter_0000100), which must not hold a checkpoint yet. Norms before a linear
// layer stand under both names that Megatron has for them, as do their states. .metadata comes
// last: without it a folder is no checkpoint.
void write_fsdp_dtensor(const TensorSource& source, const Path& folder,
                        const FsdpWriteOptions& options);

}  // namespace phx
