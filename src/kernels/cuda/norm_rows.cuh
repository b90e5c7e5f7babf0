// RMSNorm and LayerNorm are one pair of kernels: kMean says whether the mean is taken off (and a
// bias may be added). A row is read once and held in registers, by one warp (short rows, eight to a
// block) or by one block; rows too wide or not made of 16-byte vectors are walked element by
// element.
#pragma once

#include "phalanx/kernels/cuda/norm_row_parts.cuh"

namespace phx::kernels::cuda {

template <class T>
struct NormForward {
  const T *x, *w, *bias;  // [rows, h], [h], [h] or null
  T* y;
  float *mean, *rstd;  // [rows]; mean is null for RMSNorm
  int64_t rows;
  int h;
  float eps, shift;  // shift 1: the weight is stored minus one
};

namespace detail {

// kLanes threads a row, each with kVecs vectors: vector v of lane l is column (v kLanes + l) kWide.
template <class T, bool kMean, int kLanes, int kVecs>
__global__ void __launch_bounds__(kLanes == kWarp ? kWarp * kShortRows : kLanes)
    norm_kernel(NormForward<T> a) {
  constexpr int kWide = kVector<T>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= a.rows) return;  // whole warps (or the whole block) leave together
  const T* x = a.x + row * a.h;
  const int lane = int(threadIdx.x);

  Pack<T, kWide> in[kVecs];
  float sum = 0.f;
#pragma unroll
  for (int v = 0; v < kVecs; ++v) {
    const int column = (v * kLanes + lane) * kWide;
    if (column >= a.h) continue;
    in[v] = load<kWide>(x + column);
#pragma unroll
    for (int j = 0; j < kWide; ++j)
      sum += kMean ? float(in[v][j]) : float(in[v][j]) * float(in[v][j]);
  }
  sum = row_sum<kLanes>(sum) / float(a.h);
  float mean = 0.f, square = sum;
  if constexpr (kMean) {
    mean = sum;
    square = 0.f;  // around the mean: E[x^2] - E[x]^2 would cancel
#pragma unroll
    for (int v = 0; v < kVecs; ++v) {
      if ((v * kLanes + lane) * kWide >= a.h) continue;
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        const float d = float(in[v][j]) - mean;
        square += d * d;
      }
    }
    square = row_sum<kLanes>(square) / float(a.h);
  }
  const float r = 1.f / sqrtf(square + a.eps);

  T* y = a.y + row * a.h;
#pragma unroll
  for (int v = 0; v < kVecs; ++v) {
    const int column = (v * kLanes + lane) * kWide;
    if (column >= a.h) continue;
    const Pack<T, kWide> w = load<kWide>(a.w + column);
    Pack<T, kWide> bias, out;
    if (kMean && a.bias) bias = load<kWide>(a.bias + column);
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      float value = (float(in[v][j]) - mean) * r * (float(w[j]) + a.shift);
      if (kMean && a.bias) value += float(bias[j]);
      out[j] = T(value);
    }
    store(y + column, out);
  }
  if (lane == 0) {
    a.rstd[row] = r;
    if (kMean) a.mean[row] = mean;
  }
}

// Any width: a block a row, element by element, x read again from the cache.
template <class T, bool kMean>
__global__ void __launch_bounds__(kWalkThreads) norm_walk_kernel(NormForward<T> a) {
  const int64_t row = blockIdx.x;
  const T* x = a.x + row * a.h;
  float mean = 0.f;
  if constexpr (kMean) {
    for (int i = int(threadIdx.x); i < a.h; i += kWalkThreads) mean += float(x[i]);
    mean = block_sum<kWalkThreads>(mean) / float(a.h);
  }
  float square = 0.f;
  for (int i = int(threadIdx.x); i < a.h; i += kWalkThreads) {
    const float d = float(x[i]) - mean;
    square += d * d;
  }
  const float r = 1.f / sqrtf(block_sum<kWalkThreads>(square) / float(a.h) + a.eps);
  for (int i = int(threadIdx.x); i < a.h; i += kWalkThreads) {
    float value = (float(x[i]) - mean) * r * (float(a.w[i]) + a.shift);
    if (kMean && a.bias) value += float(a.bias[i]);
    a.y[row * a.h + i] = T(value);
  }
  if (threadIdx.x == 0) {
    a.rstd[row] = r;
    if (kMean) a.mean[row] = mean;
  }
}

}  // namespace detail

template <bool kMean, class T>
void launch_norm(const NormForward<T>& a, bool vectors, cudaStream_t stream) {
  using namespace detail;
  if (a.rows == 0) return;
  const bool held = vectors && for_row_width(a.h / kVector<T>, [&]<int kLanes, int kVecs>() {
                      constexpr int kRows = kLanes == kWarp ? kShortRows : 1;
                      norm_kernel<T, kMean, kLanes, kVecs>
                          <<<blocks_for(a.rows, kRows), dim3(kLanes, kRows), 0, stream>>>(a);
                    });
  if (!held) norm_walk_kernel<T, kMean><<<blocks_for(a.rows, 1), kWalkThreads, 0, stream>>>(a);
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
