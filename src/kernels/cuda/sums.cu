#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/column_sum.h"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/row_blocks.h"
#include "phalanx/kernels/sums.h"

namespace phx::kernels::cuda {

namespace {

using phx::cuda::load;
using phx::cuda::Pack;

constexpr int kThreads = 256;

// blockIdx.y is a block of rows; a thread goes down kWide neighbouring columns, so that a warp
// reads whole lines.
template <class T, int kWide>
__global__ void column_sums_kernel(const T* __restrict__ x, float* __restrict__ sums, int64_t rows,
                                   int64_t n) {
  const int64_t column = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWide;
  if (column >= n) return;
  const int64_t begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
  float total[kWide] = {};
  for (int64_t row = begin; row < end; ++row) {
    const Pack<T, kWide> in = load<kWide>(x + row * n + column);
#pragma unroll
    for (int j = 0; j < kWide; ++j) total[j] += float(in[j]);
  }
#pragma unroll
  for (int j = 0; j < kWide; ++j) sums[blockIdx.y * n + column + j] = total[j];
}

// Over a block of kThreads threads, in a tree that is the same one every time; thread 0 has the
// sum.
__device__ double block_sum_f64(double x) {
  __shared__ double shared[kThreads];
  shared[threadIdx.x] = x;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  return shared[0];
}

// In f64: a thread adds up tens of thousands of elements of a large model, and squares of f32 may
// be beyond f32. The kernel waits for memory all the same.
__device__ __forceinline__ double term_of(float x, Term term) {
  return term == Term::square ? double(x) * double(x) : double(x);
}

// Block i adds up the i-th piece of the vectors, the last one also what is left over of n.
template <class T, int kWide>
__global__ void sum_kernel(const T* __restrict__ x, double* __restrict__ parts, int64_t n,
                           Term term) {
  const int64_t vectors = n / kWide, block = blockIdx.x, blocks = gridDim.x;
  const int64_t end = vectors * (block + 1) / blocks;
  double total = 0;
  for (int64_t i = vectors * block / blocks + threadIdx.x; i < end; i += kThreads) {
    const Pack<T, kWide> in = load<kWide>(x + i * kWide);
#pragma unroll
    for (int j = 0; j < kWide; ++j) total += term_of(float(in[j]), term);
  }
  if (block == blocks - 1 && vectors * kWide + threadIdx.x < n)  // fewer than kWide are left
    total += term_of(float(x[vectors * kWide + threadIdx.x]), term);
  total = block_sum_f64(total);
  if (threadIdx.x == 0) parts[block] = total;
}

// One block: thread i adds up parts i, i + kThreads, ..
template <class Y>
__global__ void add_parts_kernel(const double* __restrict__ parts, Y* __restrict__ total,
                                 int64_t blocks, bool keep) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += kThreads) sum += parts[i];
  sum = block_sum_f64(sum);
  if (threadIdx.x == 0) *total = Y((keep ? double(*total) : 0.0) + sum);
}

}  // namespace

void column_sums(const Tensor& x, Tensor& workspace, const Sink& sums) {
  const int64_t n = x.dim(-1), rows = x.numel() / n, blocks = workspace.dim(0);
  const cudaStream_t stream = phx::cuda::stream_of(x);
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    constexpr int kWide = 16 / sizeof(T);
    constexpr int kNarrowBlock = 64;  // few columns: more, smaller blocks
    if (phx::cuda::vectorizable(n, x)) {
      const dim3 grid(unsigned(ceil_div(n / kWide, kNarrowBlock)), unsigned(blocks));
      column_sums_kernel<T, kWide>
          <<<grid, kNarrowBlock, 0, stream>>>(x.data<T>(), workspace.data<float>(), rows, n);
    } else {
      const dim3 grid(unsigned(ceil_div(n, kNarrowBlock)), unsigned(blocks));
      column_sums_kernel<T, 1>
          <<<grid, kNarrowBlock, 0, stream>>>(x.data<T>(), workspace.data<float>(), rows, n);
    }
  });
  PHX_CUDA_CHECK(cudaGetLastError());
  add_row_blocks(workspace, sums);
}

void sum_all(const Tensor& x, Term term, Tensor& workspace, const Sink& total) {
  const int64_t n = x.numel();
  const auto blocks = unsigned(workspace.numel());
  const cudaStream_t stream = phx::cuda::stream_of(x);
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    constexpr int kWide = 16 / sizeof(T);
    if (reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0)
      sum_kernel<T, kWide>
          <<<blocks, kThreads, 0, stream>>>(x.data<T>(), workspace.data<double>(), n, term);
    else
      sum_kernel<T, 1>
          <<<blocks, kThreads, 0, stream>>>(x.data<T>(), workspace.data<double>(), n, term);
  });
  PHX_CUDA_CHECK(cudaGetLastError());
  const bool keep = total.beta != 0.f;
  if (total.tensor.dtype() == DType::f64)
    add_parts_kernel<<<1, kThreads, 0, stream>>>(workspace.data<double>(),
                                                 total.tensor.data<double>(), blocks, keep);
  else
    add_parts_kernel<<<1, kThreads, 0, stream>>>(workspace.data<double>(),
                                                 total.tensor.data<float>(), blocks, keep);
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
