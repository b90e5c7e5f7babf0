// Rotary position embedding: turns pairs of channels of some heads of a packed tensor by angles
// that grow with the position, in place.
//   (a, b) -> (a cos - b sin, b cos + a sin)
#pragma once

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/dispatch.h"
#include "phalanx/kernels/rope_frequencies.h"

namespace phx::kernels {

// Which heads of x [s, b, total * d] turn: `groups` runs of n heads, `stride` heads apart, from
// `first` on. Packed QKV in Megatron's order (per group: its queries, a key, a value) is one run of
// queries and key a group. The rest of x is left alone.
struct RopeHeads {
  int64_t first = 0, n = 0, d = 0;
  int64_t groups = 1, stride = 0;
  int64_t first_channel = 0;  // of the turning channels inside of a head (MLA has them last)
};

enum class RopePairs : uint8_t {
  halves,       // channels (i, i + rotary_dim / 2): Megatron's and Llama's default
  interleaved,  // channels (2i, 2i + 1)
};

// Where the rows stand: row s at `offset` + s, or at positions[s, b] (i32 with an element a row of
// x: [s, b], or [t]), for packed sequences and decoding with a cache.
struct RopePositions {
  int64_t offset = 0;
  Tensor positions = {};
};

enum class RopeDirection : int8_t { forward = 1, backward = -1 };

// x [s, b, total * d] or [t, total * d]; table [positions, 2, rotary_dim / 2] as rope_table makes
// it, in acc_dtype(x).
PHX_KERNEL(void, rope,
           (Tensor & x, const Tensor& table, const RopeHeads& heads, RopePairs pairs,
            const RopePositions& at, RopeDirection direction))

}  // namespace phx::kernels
