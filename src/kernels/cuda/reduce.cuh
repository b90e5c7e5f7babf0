// Sums and maxima over a warp or a block, in a fixed order. All threads of the warp (block) take
// part, and all of them get the result.
#pragma once

#include <cuda_runtime.h>

namespace phx::cuda {

inline constexpr int kWarp = 32;

// kWidth a power of two up to 32: reduces over aligned groups of so many lanes.
template <int kWidth = kWarp>
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = kWidth / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

template <int kWidth = kWarp>
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = kWidth / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

namespace detail {

// One value per warp through shared memory, combined by every warp alike: two barriers, and the
// buffer may be used again at once. `combine` reduces 32 lanes.
template <int kThreads, class Combine>
__device__ __forceinline__ float block_reduce(float x, float neutral, Combine combine) {
  static_assert(kThreads % kWarp == 0 && kThreads <= 1024);
  constexpr int kWarps = kThreads / kWarp;
  if constexpr (kWarps == 1) return combine(x);
  __shared__ float parts[kWarps];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  x = combine(x);
  __syncthreads();  // the last reduction's readers are through
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  return combine(lane < kWarps ? parts[lane] : neutral);
}

}  // namespace detail

// Over a one-dimensional block of exactly kThreads threads.
template <int kThreads>
__device__ __forceinline__ float block_sum(float x) {
  return detail::block_reduce<kThreads>(x, 0.f, [](float v) { return warp_sum(v); });
}

template <int kThreads>
__device__ __forceinline__ float block_max(float x) {
  return detail::block_reduce<kThreads>(x, -INFINITY, [](float v) { return warp_max(v); });
}

}  // namespace phx::cuda
