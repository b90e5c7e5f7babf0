#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/philox.h"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/random_fill.h"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

constexpr int kThreads = 256;

// A thread takes four columns that share one Philox call: quad q of a row is the global columns
// 4 (global_col / 4 + q) .., of which the first and the last may reach out of the box.
template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_normal_kernel(T* __restrict__ x, int64_t width, FillBox box, uint64_t key, float std,
                       int64_t quads) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t r = i / quads, quad = box.global_col / 4 + i % quads;
  if (r >= box.rows) return;
  const auto row = uint64_t(box.global_row + r);
  const Philox4 words = philox4x32(key, uint32_t(row), uint32_t(row >> 32), uint32_t(quad), 0);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t col = quad * 4 + j - box.global_col;  // inside of the box
    if (col >= 0 && col < box.cols)
      x[(box.row + r) * width + box.col + col] = T(phx::detail::mul(normal_from(words.x[j]), std));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_constant_kernel(T* __restrict__ x, int64_t width, FillBox box, T value) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t r = i / box.cols, col = i % box.cols;
  if (r < box.rows) x[(box.row + r) * width + box.col + col] = value;
}

}  // namespace

void fill_normal(Tensor& x, const FillBox& box, const NormalFill& fill) {
  if (box.rows * box.cols == 0) return;
  const int64_t quads = (box.global_col + box.cols + 3) / 4 - box.global_col / 4;
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    fill_normal_kernel<T><<<blocks_for(box.rows * quads, kThreads), kThreads, 0, stream_of(x)>>>(
        x.data<T>(), x.dim(-1), box, philox_key(fill.seed, fill.site, 0), float(fill.std), quads);
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void fill_constant(Tensor& x, const FillBox& box, double value) {
  if (box.rows * box.cols == 0) return;
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    fill_constant_kernel<T>
        <<<blocks_for(box.rows * box.cols, kThreads), kThreads, 0, stream_of(x)>>>(
            x.data<T>(), x.dim(-1), box, T(float(value)));
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
