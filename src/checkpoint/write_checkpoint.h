// A native checkpoint made from any source of tensors, streaming: peak memory is some blocks, not a
// tensor. For conversions; a training run saves through checkpoint/saver.h.
#pragma once

#include <cstdint>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/manifest.h"
#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

struct WriteOptions {
  int64_t shard_bytes = int64_t{5} << 30;  // a file is closed when it has as many
  Disk* disk = &Disk::real();
};

// DIR/iter_%07d with all tensors of `source`, and the tracker names it: whole, or as before.
void write_checkpoint(const Path& folder, int64_t iteration, const TensorSource& source,
                      const CheckpointInfo& info, const WriteOptions& options = {});

}  // namespace phx
