// Rotary position embedding, differentiable: the backward turns the gradient back by the same
// angles.
//
//   const Tensor table = rope_table({.head_dim = 128, .base = 5e5}, max_positions, f32, device);
//   qkv = apply_rope_in_place(std::move(qkv), table, {.first = 0, .n = 40, .d = 128});
#pragma once

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/rope.h"

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
// are copied. table as rope_table makes it. The backward makes new memory too.
Tensor apply_rope(const Tensor& x, const Tensor& table, const RopeHeads& heads,
                  const RopeOptions& options = {});

// The same in place, both ways: x is overwritten, and in the backward the gradient that arrives.
// The caller says so by this call; which memory is used never depends on who else happens to hold a
// handle. It is right where nobody needs the old values: x is freshly made, moved in, and its
// producer has not saved it for its backward (a linear layer does not save its output); and the
// result's one consumer makes a gradient of its own (attention does, a sum hands the same one to
// both sides). Where somebody does hold them, that is an error, in either direction.
Tensor apply_rope_in_place(Tensor&& x, const Tensor& table, const RopeHeads& heads,
                           const RopeOptions& options = {});

}  // namespace phx
