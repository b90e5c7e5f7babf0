// Rotary position embedding, differentiable: the backward turns the gradient back by the same
// angles.
//
//   const Tensor table = rope_table({.head_dim = 128, .base = 5e5}, max_positions, f32, device);
//   qkv = apply_rope_in_place(std::move(qkv), table, {.first = 0, .n = 40, .d = 128});
#pragma once

#include "core/tensor.h"
#include "kernels/rope.h"

namespace phx {

using kernels::Llama3Scaling;
using kernels::rope_table;
using kernels::RopeConfig;
using kernels::RopeHeads;
using kernels::RopePairs;
using kernels::RopePositions;
using kernels::YarnScaling;

struct RopeOptions {
  RopePairs pairs = RopePairs::halves;
  RopePositions at = {};
};

// x [s, b, total * d] or [t, total * d] -> the same shape, in new memory; heads outside of `heads`
// are copied. table as rope_table makes it.
Tensor apply_rope(const Tensor& x, const Tensor& table, const RopeHeads& heads,
                  const RopeOptions& options = {});

// The same, overwriting x. Allowed where nobody else needs the old values: x is freshly made, moved
// in, and its producer has not saved it for its backward (a linear layer does not save its output).
// This is checked: x must be the only handle on its memory.
Tensor apply_rope_in_place(Tensor&& x, const Tensor& table, const RopeHeads& heads,
                           const RopeOptions& options = {});

}  // namespace phx
