// How a warpgroup stores its sums of a tile, in 16-byte pieces where it can.
#pragma once

#include <cstdint>
#include <type_traits>

#include "phalanx/core/cuda/vector.cuh"

namespace phx::kernels::cuda::grouped {

using phx::cuda::load;
using phx::cuda::Pack;
using phx::cuda::store;

// Four words in each of four neighbouring lanes: lane q gets word q of all of them.
__device__ __forceinline__ void transpose_quad(uint32_t (&word)[4], int q) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, (q & 1) != 0 ? word[i] : word[i + 1], 1);
    if ((q & 1) != 0)
      word[i] = other;
    else
      word[i + 1] = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, (q & 2) != 0 ? word[i] : word[i + 2], 2);
    if ((q & 2) != 0)
      word[i] = other;
    else
      word[i + 2] = other;
  }
}

template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
  } else {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
  }
}

// A lane's sums of one row: columns 8 j + 2 q (+ 1) are sums[4 j + 2 half] (+ 1). `out` is the
// tile's row; `stored`: whether there is such a row; `width`: columns that the tile has.
template <class Out>
__device__ __forceinline__ void store_row(const float (&sums)[128], int half, Out* out, bool stored,
                                          int width, float beta) {
  const int q = int(threadIdx.x) % 4;
  if constexpr (sizeof(Out) == 2) {
    if (beta == 0.f) {
#pragma unroll
      for (int j = 0; j < 32; j += 4) {
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          word[i] = pack<Out>(sums[4 * (j + i) + 2 * half], sums[4 * (j + i) + 2 * half + 1]);
        transpose_quad(word, q);  // lane q: the eight columns from 8 (j + q) on
        const int column = 8 * (j + q);
        if (stored && column < width)
          *reinterpret_cast<uint4*>(out + column) = make_uint4(word[0], word[1], word[2], word[3]);
      }
      return;
    }
  }
  constexpr int kBatch = 8;  // loads that are on their way at once
#pragma unroll
  for (int first = 0; first < 32; first += kBatch) {
    Pack<Out, 2> pair[kBatch];
    if (beta != 0.f) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (stored && 8 * (first + i) < width) pair[i] = load<2>(out + 8 * (first + i) + 2 * q);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const float* sum = sums + 4 * (first + i) + 2 * half;
      if (!stored || 8 * (first + i) >= width) continue;
#pragma unroll
      for (int c = 0; c < 2; ++c)
        pair[i][c] = Out(beta != 0.f ? float(pair[i][c]) + sum[c] : sum[c]);
      store(out + 8 * (first + i) + 2 * q, pair[i]);
    }
  }
}

}  // namespace phx::kernels::cuda::grouped
