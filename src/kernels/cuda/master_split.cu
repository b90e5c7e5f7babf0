#include "phalanx/base/math.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/kernels/master_split.h"

namespace phx::kernels::cuda {

namespace {

constexpr int kThreads = 256;

// A thread an element: these run when a checkpoint is loaded or saved, not in a step.
__global__ void split_kernel(const uint32_t* __restrict__ master, uint16_t* __restrict__ weight,
                             uint16_t* __restrict__ remainder, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const SplitMaster parts = split_master_bits(master[i]);
  weight[i] = parts.weight;
  remainder[i] = parts.remainder;
}

__global__ void join_kernel(const uint16_t* __restrict__ weight,
                            const uint16_t* __restrict__ remainder, uint32_t* __restrict__ master,
                            int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) master[i] = join_master_bits(weight[i], remainder[i]);
}

}  // namespace

void split_master(const Tensor& master, Tensor& weight, Tensor& remainder) {
  const int64_t n = master.numel();
  split_kernel<<<unsigned(ceil_div(n, kThreads)), kThreads, 0,
                 static_cast<cudaStream_t>(master.device().compute_stream())>>>(
      static_cast<const uint32_t*>(master.raw()), static_cast<uint16_t*>(weight.raw()),
      remainder.data<uint16_t>(), n);
  PHX_CUDA_CHECK(cudaGetLastError());
}

void join_master(const Tensor& weight, const Tensor& remainder, Tensor& master) {
  const int64_t n = master.numel();
  join_kernel<<<unsigned(ceil_div(n, kThreads)), kThreads, 0,
                static_cast<cudaStream_t>(master.device().compute_stream())>>>(
      static_cast<const uint16_t*>(weight.raw()), remainder.data<uint16_t>(),
      static_cast<uint32_t*>(master.raw()), n);
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
