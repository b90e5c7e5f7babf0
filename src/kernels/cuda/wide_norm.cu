#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/kernels/cuda/reduce.cuh"
#include "phalanx/kernels/wide_norm.h"

namespace phx::kernels::cuda {

using phx::cuda::block_sum;

namespace {

constexpr int kThreads = 256;

struct Geometry {
  int64_t rows, width, q, k, all_q, all_k;
  float eps, shift;
};

Geometry geometry(const Tensor& x, const WideParts& parts, const NormOptions& options) {
  return {.rows = x.numel() / x.dim(-1),
          .width = x.dim(-1),
          .q = parts.q,
          .k = parts.k,
          .all_q = parts.all_q,
          .all_k = parts.all_k,
          .eps = float(options.eps),
          .shift = options.zero_centred ? 1.f : 0.f};
}

__device__ float rstd_of(float sum, int64_t channels, float eps) {
  return rsqrtf(sum / float(channels) + eps);
}

// A block a row and part (blockIdx.y: q or k): the sum of x^2, or with dy of dy w x.
template <class T>
__global__ void row_sums_kernel(const T* __restrict__ x, const T* __restrict__ wq,
                                const T* __restrict__ wk, const T* __restrict__ dy, Geometry at,
                                float* __restrict__ sums) {
  const int part = int(blockIdx.y);
  const int64_t first = int64_t{blockIdx.x} * at.width + (part == 0 ? 0 : at.q);
  const int64_t count = part == 0 ? at.q : at.k;
  const T* w = part == 0 ? wq : wk;
  float sum = 0.f;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    const float value = float(x[first + i]);
    sum += dy == nullptr ? value * value : float(dy[first + i]) * (float(w[i]) + at.shift) * value;
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) sums[2 * int64_t{blockIdx.x} + part] = sum;
}

// A block a row; its threads take the columns in turn.
template <class T>
__global__ void wide_norm_kernel(const T* __restrict__ x, const T* __restrict__ wq,
                                 const T* __restrict__ wk, const float* __restrict__ sums,
                                 Geometry at, T* __restrict__ y) {
  const int64_t row = blockIdx.x;
  const float rq = rstd_of(sums[2 * row], at.all_q, at.eps);
  const float rk = rstd_of(sums[2 * row + 1], at.all_k, at.eps);
  for (int64_t i = threadIdx.x; i < at.width; i += kThreads) {
    const int64_t place = row * at.width + i;
    if (i >= at.q + at.k) {
      y[place] = x[place];
      continue;
    }
    const bool query = i < at.q;
    const float w = float(query ? wq[i] : wk[i - at.q]) + at.shift;
    y[place] = T(float(x[place]) * (query ? rq : rk) * w);
  }
}

// A thread a column (blockIdx.x), which goes through the rows of one block of them (blockIdx.y) and
// keeps the weight's gradient in a register: one fixed order.
template <class T>
__global__ void wide_norm_backward_kernel(const T* __restrict__ x, const T* __restrict__ wq,
                                          const T* __restrict__ wk, const float* __restrict__ sums,
                                          const float* __restrict__ dots, const T* __restrict__ dy,
                                          Geometry at, T* __restrict__ dx,
                                          float* __restrict__ partial) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= at.width) return;
  const int64_t begin = at.rows * blockIdx.y / gridDim.y,
                end = at.rows * (blockIdx.y + 1) / gridDim.y;
  if (i >= at.q + at.k) {
    for (int64_t row = begin; row < end; ++row) dx[row * at.width + i] = dy[row * at.width + i];
    return;
  }
  const int part = i < at.q ? 0 : 1;
  const int64_t all = part == 0 ? at.all_q : at.all_k;
  const float w = float(part == 0 ? wq[i] : wk[i - at.q]) + at.shift;
  float dw = 0.f;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t place = row * at.width + i;
    const float r = rstd_of(sums[2 * row + part], all, at.eps);
    const float mean = dots[2 * row + part] * r / float(all);
    const float xhat = float(x[place]) * r, g = float(dy[place]);
    dw += g * xhat;
    dx[place] = T(r * (g * w - xhat * mean));
  }
  partial[int64_t{blockIdx.y} * (at.q + at.k) + i] = dw;
}

template <class Y>
__global__ void add_partial_kernel(const float* __restrict__ partial, int blocks, int64_t stride,
                                   int64_t column, Y* __restrict__ out, int64_t count, bool keep) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  float total = 0.f;
  for (int block = 0; block < blocks; ++block) total += partial[block * stride + column + i];
  out[i] = Y(keep ? float(out[i]) + total : total);
}

unsigned blocks_for(int64_t count) { return unsigned((count + kThreads - 1) / kThreads); }

cudaStream_t stream_of(const Tensor& x) {
  return static_cast<cudaStream_t>(x.device().compute_stream());
}

}  // namespace

void wide_norm_sums(const Tensor& x, const WideParts& parts, Tensor& sums) {
  const Geometry at = geometry(x, parts, {});
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    row_sums_kernel<T><<<dim3(unsigned(at.rows), 2), kThreads, 0, stream_of(x)>>>(
        x.data<T>(), nullptr, nullptr, nullptr, at, sums.data<float>());
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void wide_norm(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& sums,
               const WideParts& parts, const NormOptions& options, Tensor& y) {
  const Geometry at = geometry(x, parts, options);
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    wide_norm_kernel<T><<<unsigned(at.rows), kThreads, 0, stream_of(x)>>>(
        x.data<T>(), wq.data<T>(), wk.data<T>(), sums.data<float>(), at, y.data<T>());
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void wide_norm_dots(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& dy,
                    const WideParts& parts, const NormOptions& options, Tensor& dots) {
  const Geometry at = geometry(x, parts, options);
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    row_sums_kernel<T><<<dim3(unsigned(at.rows), 2), kThreads, 0, stream_of(x)>>>(
        x.data<T>(), wq.data<T>(), wk.data<T>(), dy.data<T>(), at, dots.data<float>());
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void wide_norm_backward(const Tensor& x, const Tensor& wq, const Tensor& wk,
                        const WideSums& over_ranks, const Tensor& dy, const WideParts& parts,
                        const NormOptions& options, Tensor& workspace, Tensor& dx, const Sink& dwq,
                        const Sink& dwk) {
  const Geometry at = geometry(x, parts, options);
  const int blocks = int(workspace.dim(0));
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    wide_norm_backward_kernel<T>
        <<<dim3(blocks_for(at.width), unsigned(blocks)), kThreads, 0, stream_of(x)>>>(
            x.data<T>(), wq.data<T>(), wk.data<T>(), over_ranks.sums.data<float>(),
            over_ranks.dots.data<float>(), dy.data<T>(), at, dx.data<T>(), workspace.data<float>());
  });
  int64_t column = 0;
  for (const Sink* sink : {&dwq, &dwk}) {
    const int64_t count = sink->tensor.numel();
    for_gpu_dtype(sink->tensor.dtype(), [&]<class Y>() {
      add_partial_kernel<Y><<<blocks_for(count), kThreads, 0, stream_of(x)>>>(
          workspace.data<float>(), blocks, at.q + at.k, column, sink->tensor.data<Y>(), count,
          sink->beta != 0.f);
    });
    column += count;
  }
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
