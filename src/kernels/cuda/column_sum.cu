#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/kernels/cuda/column_sum.h"
#include "phalanx/kernels/cuda/launch.cuh"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

constexpr int kColumns = 32, kGroups = 8;

// 32 columns a block; thread group g adds rows g, g + 8, .. of its column, then group 0 adds the
// groups in order.
template <class Y>
__global__ void column_sum_kernel(const float* __restrict__ partial, int blocks, int h,
                                  Y* __restrict__ out, bool keep) {
  __shared__ float sums[kGroups][kColumns];
  const int column = int(blockIdx.x) * kColumns + int(threadIdx.x);
  float sum = 0.f;
  if (column < h) {
#pragma unroll 4
    for (int row = int(threadIdx.y); row < blocks; row += kGroups)
      sum += partial[int64_t{row} * h + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= h) return;
  for (int group = 1; group < kGroups; ++group) sum += sums[group][threadIdx.x];
  out[column] = Y(keep ? float(out[column]) + sum : sum);
}

}  // namespace

void add_row_blocks(const Tensor& partial, const Sink& sink) {
  const int blocks = narrow<int>(partial.dim(0)), h = narrow<int>(partial.dim(1));
  for_gpu_dtype(sink.tensor.dtype(), [&]<class Y>() {
    column_sum_kernel<Y>
        <<<blocks_for(h, kColumns), dim3(kColumns, kGroups), 0, stream_of(partial)>>>(
            partial.data<float>(), blocks, h, sink.tensor.data<Y>(), sink.beta != 0.f);
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
