// One micro-batch on the device.
#pragma once

#include "phalanx/core/named_tensors.h"
#include "phalanx/ops/attention.h"

namespace phx {

// Activations are [s, b, h], so tokens come as [s, b] as well. A decoder reads
//   tokens     [s, b] i64 or i32
//   labels     [s, b], -100 is ignored
//   loss_mask  [s, b] in acc_dtype; absent: all ones
//   positions  [s, b] i32; absent: 0, 1, 2 ..
// The loader provides tokens, labels (-100 where the mask is 0) and, where samples have them,
// positions. Stages inside of a pipeline get positions and lengths only, or nothing.
struct Batch {
  NamedTensors tensors;
  PackedSequences packed = {};  // b is 1 then, and s the tokens of all samples; or undefined
};

}  // namespace phx
