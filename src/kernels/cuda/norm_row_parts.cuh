// What the forward and the backward of norms share: how many threads take a row, and sums over
// them.
#pragma once

#include <cuda_runtime.h>

#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/cuda/reduce.cuh"

namespace phx::kernels::cuda::detail {

using namespace phx::cuda;

inline constexpr int kShortRows = 8;      // rows a block where a warp takes a row
inline constexpr int kWalkThreads = 256;  // of the element-by-element kernels

template <int kLanes>
__device__ __forceinline__ float row_sum(float x) {
  if constexpr (kLanes == kWarp)
    return warp_sum(x);
  else
    return block_sum<kLanes>(x);
}

// Several sums over a row's threads with one exchange.
template <int kLanes, int kN, int kAll>
__device__ __forceinline__ void row_sums(float (&x)[kAll]) {
#pragma unroll
  for (int i = 0; i < kN; ++i) x[i] = warp_sum(x[i]);
  if constexpr (kLanes > kWarp) {
    constexpr int kWarps = kLanes / kWarp;
    __shared__ float parts[kN][kWarps];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    __syncthreads();  // the last sums' readers are through
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < kN; ++i) parts[i][warp] = x[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kN; ++i) x[i] = warp_sum(lane < kWarps ? parts[i][lane] : 0.f);
  }
}

// Calls f<kLanes, kVecs>() for the smallest arrangement that holds a row of `vectors` vectors;
// false if none does.
template <class F>
bool for_row_width(int64_t vectors, F&& f) {
  if (vectors <= 32 * 2)
    f.template operator()<32, 2>();
  else if (vectors <= 32 * 3)
    f.template operator()<32, 3>();
  else if (vectors <= 32 * 4)
    f.template operator()<32, 4>();
  else if (vectors <= 256)
    f.template operator()<256, 1>();
  else if (vectors <= 256 * 2)
    f.template operator()<256, 2>();
  else if (vectors <= 256 * 4)
    f.template operator()<256, 4>();
  else if (vectors <= 512 * 4)
    f.template operator()<512, 4>();
  else
    return false;
  return true;
}

}  // namespace phx::kernels::cuda::detail
