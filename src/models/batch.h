// One micro-batch on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "phalanx/core/named_tensors.h"
#include "phalanx/ops/attention.h"

namespace phx {

// Activations are [s, b, h], so tokens come as [s, b] as well. A decoder reads
//   tokens     [s, b] i64 or i32
//   labels     [s, b], -100 is ignored
//   loss_mask  [s, b] in acc_dtype; absent: all ones
//   positions  [s, b] i32; absent: 0, 1, 2 ..
// and for multi-token prediction, k = 1, 2 ..,
//   tokens.k, labels.k, positions.k   the same moved k towards the begin of their sequence; behind
//                                     its end token 0, label -100 and position 0
// The loader provides tokens, labels (-100 where the mask is 0) and, where samples have them,
// positions. Stages inside of a pipeline get positions and lengths only, or nothing.
struct Batch {
  NamedTensors tensors;
  // How many labels count; with multi-token prediction, those of labels.k at [k].
  std::vector<int64_t> counted = {};
  PackedSequences packed = {};  // b is 1 then, and s the tokens of all samples; or undefined
};

}  // namespace phx
