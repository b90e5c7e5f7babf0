// One micro-batch on the device.
#pragma once

#include "core/named_tensors.h"
#include "ops/attention.h"

namespace phx {

// Activations are [s, b, h], so tokens come as [s, b] as well. A decoder reads
//   tokens     [s, b] i64 or i32
//   labels     [s, b], -100 is ignored
//   loss_mask  [s, b] in acc_dtype; absent: all ones
//   positions  [s, b] i32; absent: 0, 1, 2 ..
// Other models may ask their dataset for other names.
struct Batch {
  NamedTensors tensors;
  PackedSequences packed = {};  // b is 1 then, and s the tokens of all samples; or undefined
};

}  // namespace phx
