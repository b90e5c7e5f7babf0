#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/kernels/attention_merge.h"

namespace phx::kernels::cuda {

namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 8;

// One warp a head of a token: its lanes hold the channels lane, lane + 32, ..
template <class T>
__global__ void merge_kernel(const T* __restrict__ part, const float* __restrict__ part_lse,
                             float* __restrict__ o, float* __restrict__ lse, int64_t s, int b,
                             int n, int d) {
  const int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (item >= s * b * n) return;  // whole warps leave together
  const int64_t row = item / n;
  const int64_t at = (row % b * n + item % n) * s + row / b;  // in both lse
  const float old = lse[at], other = part_lse[at];
  const float top = fmaxf(old, other), low = fminf(old, other);
  const float both = top + log1pf(expf(low - top));
  const float keep = expf(old - both), add = expf(other - both);
  for (int i = threadIdx.x; i < d; i += kLanes)
    o[item * d + i] = keep * o[item * d + i] + add * float(part[item * d + i]);
  __syncwarp();  // every lane has read the old one
  if (threadIdx.x == 0) lse[at] = both;
}

}  // namespace

void merge_attention(const Tensor& part, const Tensor& part_lse, const Tensor& o,
                     const Tensor& lse) {
  const int64_t s = part.dim(0), b = part.dim(1), n = lse.dim(1), d = part.dim(2) / n;
  const dim3 grid(unsigned((s * b * n + kWarps - 1) / kWarps)), block(kLanes, kWarps);
  auto stream = static_cast<cudaStream_t>(part.device().compute_stream());
  for_gpu_dtype(part.dtype(), [&]<class T>() {
    merge_kernel<T><<<grid, block, 0, stream>>>(part.data<T>(), part_lse.data<float>(),
                                                o.data<float>(), lse.data<float>(), s, int(b),
                                                int(n), int(d));
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
