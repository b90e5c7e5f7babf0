// Rows into the order of their experts and back: copies, sums over a token's rows, and factors.
#include "phalanx/kernels/cuda/for_width.cuh"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/cuda/reduce.cuh"
#include "phalanx/kernels/expert_rows.h"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

constexpr int kThreads = 256;

// A thread takes kWide neighbouring channels of kRounds rows' pieces, kThreads apart, so that
// several loads are on their way at once. per_row pieces make a row.
constexpr int kRounds = 4;

template <class T, int kWide>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const T* __restrict__ x, const int* __restrict__ source, uint32_t per_source,
                  T* __restrict__ y, uint32_t count, uint32_t per_row) {
  const uint32_t first = blockIdx.x * (kThreads * kRounds) + threadIdx.x;
  Pack<T, kWide> values[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int j = 0; j < kWide; ++j) values[round][j] = T(0.f);
    const uint32_t i = first + round * kThreads;
    if (i >= count) continue;
    const uint32_t row = i / per_row, piece = i - row * per_row;
    const int from = source[row];
    if (from >= 0)
      values[round] =
          load<kWide>(x + (int64_t{uint32_t(from) / per_source} * per_row + piece) * kWide);
  }
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const uint32_t i = first + round * kThreads;
    if (i < count) store(y + int64_t{i} * kWide, values[round]);
  }
}

// A thread takes kWide channels of a token, and kBatch of its rows at a time.
template <class T, int kWide>
__global__ void __launch_bounds__(kThreads)
    sum_rows_kernel(const T* __restrict__ x, const int* __restrict__ row_of, int k,
                    T* __restrict__ out, bool keep, uint32_t count, uint32_t per_row) {
  constexpr int kBatch = 8;
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const uint32_t token = i / per_row, piece = i - token * per_row;
  const int* rows = row_of + int64_t{token} * k;
  float sums[kWide] = {};
  if (keep) {
    const Pack<T, kWide> old = load<kWide>(out + int64_t{i} * kWide);
#pragma unroll
    for (int c = 0; c < kWide; ++c) sums[c] = float(old[c]);
  }
  for (int first = 0; first < k; first += kBatch) {
    Pack<T, kWide> values[kBatch];
    bool there[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int row = first + j < k ? rows[first + j] : -1;
      there[j] = row >= 0;
      if (there[j]) values[j] = load<kWide>(x + (int64_t{row} * per_row + piece) * kWide);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (!there[j]) continue;
#pragma unroll
      for (int c = 0; c < kWide; ++c) sums[c] += float(values[j][c]);
    }
  }
  Pack<T, kWide> result;
#pragma unroll
  for (int c = 0; c < kWide; ++c) result[c] = T(sums[c]);
  store(out + int64_t{i} * kWide, result);
}

// A warp a row: y = factor x, or backward dx = factor dy and dfactor = dy . x.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scale_rows_kernel(const T* __restrict__ x, const float* __restrict__ factors, T* __restrict__ y,
                      int64_t rows, int h) {
  const int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (row >= rows) return;  // whole warps leave together
  const float factor = factors[row];
  for (int i = int(threadIdx.x) % kWarp; i < h; i += kWarp)
    y[row * h + i] = T(factor * float(x[row * h + i]));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scale_rows_backward_kernel(const T* __restrict__ x, const float* __restrict__ factors,
                               const T* __restrict__ dy, T* __restrict__ dx,
                               float* __restrict__ dfactors, int64_t rows, int h) {
  const int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (row >= rows) return;  // whole warps leave together
  const float factor = factors[row];
  float dot = 0.f;
  for (int i = int(threadIdx.x) % kWarp; i < h; i += kWarp) {
    const float d = float(dy[row * h + i]);
    dot += d * float(x[row * h + i]);
    dx[row * h + i] = T(factor * d);
  }
  dot = warp_sum(dot);
  if (threadIdx.x % kWarp == 0) dfactors[row] = dot;
}

}  // namespace

void gather_rows(const Tensor& x, const Tensor& source, int64_t per_row, Tensor& y) {
  if (y.numel() == 0) return;
  const int64_t h = y.numel() / y.dim(0);
  for_width(x.dtype(), vectorizable(h, x, y), [&]<class T, int kWide>() {
    const auto count = count32(y.numel() / kWide);
    gather_kernel<T, kWide><<<blocks_for(count, kThreads * kRounds), kThreads, 0, stream_of(y)>>>(
        x.data<T>(), source.data<int32_t>(), count32(per_row), y.data<T>(), count,
        uint32_t(h / kWide));
  });
}

void sum_rows(const Tensor& x, const Tensor& row_of, const Sink& out) {
  if (out.tensor.numel() == 0) return;
  const int64_t t = row_of.dim(0), h = out.tensor.numel() / t;
  for_width(x.dtype(), vectorizable(h, x, out.tensor), [&]<class T, int kWide>() {
    const auto count = count32(out.tensor.numel() / kWide);
    sum_rows_kernel<T, kWide><<<blocks_for(count, kThreads), kThreads, 0, stream_of(x)>>>(
        x.data<T>(), row_of.data<int32_t>(), narrow<int>(row_of.numel() / t), out.tensor.data<T>(),
        out.beta != 0.f, count, uint32_t(h / kWide));
  });
}

void scale_rows(const Tensor& x, const Tensor& factors, Tensor& y) {
  if (x.numel() == 0) return;
  const int64_t rows = x.dim(0);
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    scale_rows_kernel<T><<<blocks_for(rows * kWarp, kThreads), kThreads, 0, stream_of(x)>>>(
        x.data<T>(), factors.data<float>(), y.data<T>(), rows, narrow<int>(x.dim(-1)));
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void scale_rows_backward(const Tensor& x, const Tensor& factors, const Tensor& dy, Tensor& dx,
                         Tensor& dfactors) {
  if (x.numel() == 0) return;
  const int64_t rows = x.dim(0);
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    scale_rows_backward_kernel<T>
        <<<blocks_for(rows * kWarp, kThreads), kThreads, 0, stream_of(x)>>>(
            x.data<T>(), factors.data<float>(), dy.data<T>(), dx.data<T>(), dfactors.data<float>(),
            rows, narrow<int>(x.dim(-1)));
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
