#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/column_sum.h"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/dropout.h"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

constexpr int kThreads = 256;
constexpr int kQuad = 4;  // channels that share one Philox call

struct Factors {
  float at[kQuad];  // scale or 0
};

// Without dropout no numbers are drawn.
__device__ __forceinline__ Factors draw(const DropoutMask& mask, uint32_t row, uint32_t quad,
                                        float scale) {
  if (mask.p == 0.f) return {{scale, scale, scale, scale}};
  const Philox4 words = mask.words(row, quad);
  Factors factors;
#pragma unroll
  for (int j = 0; j < kQuad; ++j) factors.at[j] = mask.keeps(words.x[j]) ? scale : 0.f;
  return factors;
}

// Dropped elements are 0 even where the value is inf or nan.
__device__ __forceinline__ float masked(float value, float factor) {
  return factor != 0.f ? value * factor : 0.f;
}

// Four elements in one access, or as many as the row still has.
template <class T, bool kVectors>
__device__ __forceinline__ Pack<T, kQuad> load_quad(const T* from, int count) {
  if constexpr (kVectors) {
    return load<kQuad>(from);
  } else {
    Pack<T, kQuad> values;
#pragma unroll
    for (int j = 0; j < kQuad; ++j) values[j] = j < count ? from[j] : T(0.f);
    return values;
  }
}

template <class T, bool kVectors>
__device__ __forceinline__ void store_quad(T* to, const Pack<T, kQuad>& values, int count) {
  if constexpr (kVectors) {
    store(to, values);
  } else {
#pragma unroll
    for (int j = 0; j < kQuad; ++j)
      if (j < count) to[j] = values[j];
  }
}

// A thread takes a quad of channels; `quads` of them make a row of h.
template <class T, bool kVectors>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* __restrict__ x, T* __restrict__ y, DropoutMask mask, float scale,
                   uint32_t rows, uint32_t quads, int h, bool keep) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x, row = i / quads, quad = i - row * quads;
  if (row >= rows) return;
  const int64_t at = int64_t{row} * h + quad * kQuad;
  const int count = h - int(quad) * kQuad;
  const Factors factors = draw(mask, row, quad, scale);
  const Pack<T, kQuad> in = load_quad<T, kVectors>(x + at, count);
  Pack<T, kQuad> out;
  if (keep) out = load_quad<T, kVectors>(y + at, count);
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    const float value = masked(float(in[j]), factors.at[j]);
    out[j] = T(keep ? float(out[j]) + value : value);
  }
  store_quad<T, kVectors>(y + at, out, count);
}

template <class T, bool kVectors>
__global__ void __launch_bounds__(kThreads)
    bias_dropout_add_kernel(const T* __restrict__ x, const T* __restrict__ y,
                            const T* __restrict__ bias, T* __restrict__ out, DropoutMask mask,
                            float scale, uint32_t rows, uint32_t quads, int h) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x, row = i / quads, quad = i - row * quads;
  if (row >= rows) return;
  const int64_t at = int64_t{row} * h + quad * kQuad;
  const int count = h - int(quad) * kQuad;
  const Factors factors = draw(mask, row, quad, scale);
  const Pack<T, kQuad> residual = load_quad<T, kVectors>(x + at, count);
  const Pack<T, kQuad> in = load_quad<T, kVectors>(y + at, count);
  Pack<T, kQuad> offset, sum;
  if (bias) offset = load_quad<T, kVectors>(bias + quad * kQuad, count);
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    const float biased = bias ? float(in[j]) + float(offset[j]) : float(in[j]);
    sum[j] = T(float(residual[j]) + masked(biased, factors.at[j]));
  }
  store_quad<T, kVectors>(out + at, sum, count);
}

// Block (x, y): quads of columns x, row block y as row_block cuts them; a thread walks down its
// columns and writes its part of partial [gridDim.y, h].
constexpr int kColumnThreads = 64;
template <class T, bool kVectors>
__global__ void __launch_bounds__(kColumnThreads)
    dropout_bias_kernel(const T* __restrict__ dout, float* __restrict__ partial, DropoutMask mask,
                        float scale, int64_t rows, uint32_t quads, int h) {
  const uint32_t quad = blockIdx.x * kColumnThreads + threadIdx.x;
  if (quad >= quads) return;
  const int count = h - int(quad) * kQuad;
  const int64_t begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
  float sums[kQuad] = {};
#pragma unroll 4
  for (int64_t row = begin; row < end; ++row) {
    const Pack<T, kQuad> d = load_quad<T, kVectors>(dout + row * h + quad * kQuad, count);
    const Factors factors = draw(mask, uint32_t(row), quad, scale);
#pragma unroll
    for (int j = 0; j < kQuad; ++j) sums[j] += masked(float(d[j]), factors.at[j]);
  }
#pragma unroll
  for (int j = 0; j < kQuad; ++j)
    if (j < count) partial[int64_t{blockIdx.y} * h + quad * kQuad + j] = sums[j];
}

// f<T, kVectors>().
template <class F>
void for_kernels(DType dtype, bool vectors, F&& f) {
  for_gpu_dtype(dtype, [&]<class T>() {
    if (vectors)
      f.template operator()<T, true>();
    else
      f.template operator()<T, false>();
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void dropout(const Tensor& x, double p, const RandomSite& site, const Sink& y) {
  if (x.numel() == 0) return;
  const int h = narrow<int>(x.dim(-1));
  const uint32_t rows = count32(x.numel() / h), quads = count32(ceil_div(h, kQuad));
  for_kernels(x.dtype(), vectorizable(h, x, y.tensor), [&]<class T, bool kVectors>() {
    dropout_kernel<T, kVectors>
        <<<blocks_for(count32(int64_t{rows} * quads), kThreads), kThreads, 0, stream_of(x)>>>(
            x.data<T>(), y.tensor.data<T>(), dropout_mask(x, p, site), float(dropout_scale(p)),
            rows, quads, h, y.beta != 0.f);
  });
}

void bias_dropout_add(const Tensor& x, const Tensor& y, const Tensor& bias, double p,
                      const RandomSite& site, Tensor& out) {
  if (x.numel() == 0) return;
  const int h = narrow<int>(x.dim(-1));
  const uint32_t rows = count32(x.numel() / h), quads = count32(ceil_div(h, kQuad));
  for_kernels(x.dtype(), vectorizable(h, x, y, bias, out), [&]<class T, bool kVectors>() {
    bias_dropout_add_kernel<T, kVectors>
        <<<blocks_for(count32(int64_t{rows} * quads), kThreads), kThreads, 0, stream_of(x)>>>(
            x.data<T>(), y.data<T>(), bias.defined() ? bias.data<T>() : nullptr, out.data<T>(),
            dropout_mask(x, p, site), float(dropout_scale(p)), rows, quads, h);
  });
}

void dropout_bias_backward(const Tensor& dout, double p, const RandomSite& site, Tensor& workspace,
                           const Sink& dbias) {
  const int h = narrow<int>(dout.dim(-1));
  const uint32_t quads = count32(ceil_div(h, kQuad));
  const dim3 grid(blocks_for(quads, kColumnThreads), blocks_for(workspace.dim(0), 1));
  for_kernels(dout.dtype(), vectorizable(h, dout), [&]<class T, bool kVectors>() {
    dropout_bias_kernel<T, kVectors><<<grid, kColumnThreads, 0, stream_of(dout)>>>(
        dout.data<T>(), workspace.data<float>(), dropout_mask(dout, p, site),
        float(dropout_scale(p)), dout.numel() / h, quads, h);
  });
  add_row_blocks(workspace, dbias);
}

}  // namespace phx::kernels::cuda
