#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/kernels/cuda/reduce.cuh"
#include "phalanx/kernels/head_norm.h"

namespace phx::kernels::cuda {

using phx::cuda::warp_sum;

namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 8;
constexpr int kMostPerLane = 8;  // head sizes up to 256

struct Geometry {
  int64_t rows;
  int n, g, d;
  float eps, shift;
};

// One warp a head: its lanes hold the head's channels lane, lane + 32, ...
template <class T>
__global__ void head_norm_kernel(const T* __restrict__ x, const T* __restrict__ wq,
                                 const T* __restrict__ wk, Geometry at, T* __restrict__ y,
                                 float* __restrict__ rstd) {
  const int heads = at.n + 2 * at.g, normed = at.n + at.g;
  const int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (item >= at.rows * heads) return;  // whole warps leave together
  const int64_t row = item / heads;
  const int head = int(item % heads);
  x += item * at.d;
  y += item * at.d;
  if (head >= normed) {
    for (int i = threadIdx.x; i < at.d; i += kLanes) y[i] = x[i];
    return;
  }
  const T* w = head < at.n ? wq : wk;
  float sum = 0.f;
  for (int i = threadIdx.x; i < at.d; i += kLanes) sum += float(x[i]) * float(x[i]);
  const float r = rsqrtf(warp_sum(sum) / at.d + at.eps);
  for (int i = threadIdx.x; i < at.d; i += kLanes)
    y[i] = T(float(x[i]) * r * (float(w[i]) + at.shift));
  if (threadIdx.x == 0) rstd[row * normed + head] = r;
}

// A block a fixed range of rows; its warps take the heads of those rows in turn and keep their own
// sums for dwq and dwk in registers, which are then added warp after warp: one fixed order.
template <class T>
__global__ void head_norm_backward_kernel(const T* __restrict__ x, const T* __restrict__ wq,
                                          const T* __restrict__ wk, const float* __restrict__ rstd,
                                          const T* __restrict__ dy, Geometry at, T* __restrict__ dx,
                                          float* __restrict__ partial) {
  __shared__ float sums[kWarps][2][kMostPerLane * kLanes];
  const int heads = at.n + 2 * at.g, normed = at.n + at.g;
  const int64_t begin = at.rows * blockIdx.x / gridDim.x,
                end = at.rows * (blockIdx.x + 1) / gridDim.x;
  float sum_q[kMostPerLane] = {}, sum_k[kMostPerLane] = {};
  for (int64_t item = begin * heads + threadIdx.y; item < end * heads; item += kWarps) {
    const int64_t row = item / heads;
    const int head = int(item % heads);
    const T* in = x + item * at.d;
    const T* g = dy + item * at.d;
    T* out = dx + item * at.d;
    if (head >= normed) {
      for (int i = threadIdx.x; i < at.d; i += kLanes) out[i] = g[i];
      continue;
    }
    const bool query = head < at.n;
    const T* w = query ? wq : wk;
    const float r = rstd[row * normed + head];
    float dot = 0.f;
    for (int i = threadIdx.x; i < at.d; i += kLanes)
      dot += float(g[i]) * (float(w[i]) + at.shift) * float(in[i]);
    const float mean = warp_sum(dot) * r / at.d;
#pragma unroll
    for (int j = 0; j < kMostPerLane; ++j) {
      const int i = threadIdx.x + j * kLanes;
      if (i >= at.d) break;
      const float xhat = float(in[i]) * r;
      const float dw = float(g[i]) * xhat;
      if (query)
        sum_q[j] += dw;
      else
        sum_k[j] += dw;
      out[i] = T(r * (float(g[i]) * (float(w[i]) + at.shift) - xhat * mean));
    }
  }
#pragma unroll
  for (int j = 0; j < kMostPerLane; ++j) {
    sums[threadIdx.y][0][threadIdx.x + j * kLanes] = sum_q[j];
    sums[threadIdx.y][1][threadIdx.x + j * kLanes] = sum_k[j];
  }
  __syncthreads();
  for (int i = threadIdx.y * kLanes + threadIdx.x; i < 2 * at.d; i += kWarps * kLanes) {
    const int which = i / at.d, channel = i % at.d;
    float total = 0.f;
    for (int warp = 0; warp < kWarps; ++warp) total += sums[warp][which][channel];
    partial[int64_t{blockIdx.x} * 2 * at.d + i] = total;
  }
}

template <class Y>
__global__ void add_partial_kernel(const float* __restrict__ partial, int blocks, int stride,
                                   int column, Y* __restrict__ out, int d, bool keep) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= d) return;
  float total = 0.f;
  for (int block = 0; block < blocks; ++block)
    total += partial[int64_t{block} * stride + column + i];
  out[i] = Y(keep ? float(out[i]) + total : total);
}

Geometry geometry(const Tensor& x, const PackedHeads& heads, const NormOptions& options) {
  PHX_CHECK(heads.d <= kMostPerLane * kLanes, "head_norm: heads have at most ",
            kMostPerLane * kLanes, " channels on cuda, not ", heads.d);
  return {.rows = x.numel() / (heads.total() * heads.d),
          .n = int(heads.n),
          .g = int(heads.g),
          .d = int(heads.d),
          .eps = float(options.eps),
          .shift = options.zero_centred ? 1.f : 0.f};
}

}  // namespace

void head_norm(const Tensor& x, const Tensor& wq, const Tensor& wk, const PackedHeads& heads,
               const NormOptions& options, Tensor& y, Tensor& rstd) {
  const Geometry at = geometry(x, heads, options);
  auto stream = static_cast<cudaStream_t>(x.device().compute_stream());
  const int64_t items = at.rows * heads.total();
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    head_norm_kernel<T>
        <<<unsigned((items + kWarps - 1) / kWarps), dim3(kLanes, kWarps), 0, stream>>>(
            x.data<T>(), wq.data<T>(), wk.data<T>(), at, y.data<T>(), rstd.data<float>());
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void head_norm_backward(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& rstd,
                        const Tensor& dy, const PackedHeads& heads, const NormOptions& options,
                        Tensor& workspace, Tensor& dx, const Sink& dwq, const Sink& dwk) {
  const Geometry at = geometry(x, heads, options);
  auto stream = static_cast<cudaStream_t>(x.device().compute_stream());
  const int blocks = int(workspace.dim(0));
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    head_norm_backward_kernel<T><<<blocks, dim3(kLanes, kWarps), 0, stream>>>(
        x.data<T>(), wq.data<T>(), wk.data<T>(), rstd.data<float>(), dy.data<T>(), at, dx.data<T>(),
        workspace.data<float>());
  });
  int column = 0;
  for (const Sink* sink : {&dwq, &dwk}) {
    for_gpu_dtype(sink->tensor.dtype(), [&]<class Y>() {
      add_partial_kernel<Y><<<(at.d + 127) / 128, 128, 0, stream>>>(
          workspace.data<float>(), blocks, 2 * at.d, column, sink->tensor.data<Y>(), at.d,
          sink->beta != 0.f);
    });
    column += at.d;
  }
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
