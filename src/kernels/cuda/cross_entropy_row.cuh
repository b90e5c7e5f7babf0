// A row of logits under one block of kThreads threads: its label and weight, its statistics (the
// largest logit and the sum of exponentials relative to it, merged in a fixed tree) and its
// gradient.
#pragma once

#include <cuda_runtime.h>

#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cross_entropy.h"
#include "phalanx/kernels/cuda/reduce.cuh"

namespace phx::kernels::cuda::entropy {

using phx::cuda::kWarp;
using phx::cuda::load;
using phx::cuda::Pack;
using phx::cuda::store;

inline constexpr int kThreads = 512;  // a row of 32000 bf16 is 8 packs a thread

struct Softcap {
  float cap, inverse;
  // Through an exponential: absolute error 1e-7 of the cap, at a fraction of tanhf's cost. exp
  // overflows to inf, which gives the right limit.
  __device__ float operator()(float z) const {
    return cap - __fdividef(2.f * cap, __expf(2.f * z * inverse) + 1.f);
  }
  __device__ float slope(float capped) const {
    const float tanh = capped * inverse;
    return 1.f - tanh * tanh;
  }
};

struct NoCap {
  __device__ float operator()(float z) const { return z; }
  __device__ float slope(float) const { return 1.f; }
};

// What the kernels read of a row beside its logits.
struct Rows {
  const void* labels;
  bool wide_labels;  // i64, else i32
  int64_t columns, classes;
  int64_t vocab, first_class, ignore_index;
  const float* mask;   // nullptr: 1
  const float* scale;  // nullptr: 1
  const float* dloss;  // nullptr: 1
};

struct Label {
  int64_t column;  // -1: its class is not among the columns
  bool ignored;
  bool valid;
};

__device__ inline Label label_of(const Rows& rows, int64_t row) {
  const int64_t label = rows.wide_labels ? static_cast<const int64_t*>(rows.labels)[row]
                                         : static_cast<const int32_t*>(rows.labels)[row];
  const bool ignored = label == rows.ignore_index;
  const int64_t column = label - rows.first_class;
  return {!ignored && column >= 0 && column < rows.classes ? column : -1, ignored,
          ignored || (label >= 0 && label < rows.vocab)};
}

__device__ inline float weight_of(const Rows& rows, int64_t row) {
  float weight = rows.mask != nullptr ? rows.mask[row] : 1.f;
  if (rows.scale != nullptr) weight *= *rows.scale;
  if (rows.dloss != nullptr) weight *= *rows.dloss;
  return weight;
}

// A largest value and a sum of exponentials relative to it. -inf and 0: nothing yet.
struct Partial {
  float largest, sum;
};

__device__ __forceinline__ Partial merge(Partial a, Partial b) {
  const float largest = fmaxf(a.largest, b.largest);
  if (largest == -INFINITY) return {largest, a.sum + b.sum};  // -inf - -inf would be nan
  return {largest, a.sum * __expf(a.largest - largest) + b.sum * __expf(b.largest - largest)};
}

// The same with powers of 2.
__device__ __forceinline__ Partial merge_base2(Partial a, Partial b) {
  const float largest = fmaxf(a.largest, b.largest);
  if (largest == -INFINITY) return {largest, a.sum + b.sum};
  return {largest, a.sum * exp2f(a.largest - largest) + b.sum * exp2f(b.largest - largest)};
}

template <bool kBase2>
__device__ __forceinline__ Partial warp_merge(Partial x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Partial other{__shfl_xor_sync(0xffffffffu, x.largest, offset),
                        __shfl_xor_sync(0xffffffffu, x.sum, offset)};
    x = kBase2 ? merge_base2(x, other) : merge(x, other);
  }
  return x;
}

template <bool kBase2>
__device__ inline Partial block_merge_in(Partial x) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ Partial parts[kWarps];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  x = warp_merge<kBase2>(x);
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  return warp_merge<kBase2>(lane < kWarps ? parts[lane] : Partial{-INFINITY, 0.f});
}

__device__ inline Partial block_merge(Partial x) { return block_merge_in<false>(x); }
__device__ inline Partial block_merge_base2(Partial x) { return block_merge_in<true>(x); }

using Statistics = RowStatistics<float>;

// All threads of the block get the result.
template <int kWide, class T, class Cap>
__device__ Statistics row_statistics(const T* z, int64_t classes, const Label& label,
                                     const Cap& cap) {
  Partial mine{-INFINITY, 0.f};
  const auto add = [&]<int kN>(const float(&values)[kN]) {
    float largest = mine.largest;
#pragma unroll
    for (int i = 0; i < kN; ++i) largest = fmaxf(largest, values[i]);
    // While everything is -inf, relative to 0 instead: exp(-inf) = 0 and nothing becomes nan.
    const float base = largest == -INFINITY ? 0.f : largest;
    float sum = mine.sum * __expf(mine.largest - base);
#pragma unroll
    for (int i = 0; i < kN; ++i) sum += __expf(values[i] - base);
    mine = {largest, sum};
  };
  const int64_t packs = classes / kWide;
  for (int64_t pack = threadIdx.x; pack < packs; pack += kThreads) {
    const Pack<T, kWide> in = load<kWide>(z + pack * kWide);
    float values[kWide];
#pragma unroll
    for (int i = 0; i < kWide; ++i) values[i] = cap(float(in[i]));
    add(values);
  }
  for (int64_t i = packs * kWide + threadIdx.x; i < classes; i += kThreads) {
    const float value[1] = {cap(float(z[i]))};
    add(value);
  }
  const Partial all = block_merge(mine);
  return {all.largest, all.sum, label.column >= 0 ? cap(float(z[label.column])) : 0.f};
}

struct Loss {
  float lse, loss;
};

__device__ inline Loss row_loss(const Statistics& s, const Label& label) {
  if (!label.valid) return {NAN, NAN};
  const float lse = s.largest + logf(s.sum);
  return {lse, label.ignored ? 0.f : lse - s.target};
}

template <int kWide, class T, class Cap>
__device__ void row_gradient(T* z, const Rows& rows, const Label& label, float lse, float weight,
                             const Cap& cap) {
  const bool zero = label.ignored || weight == 0.f;
  const auto gradient = [&](int64_t i, float value) {
    if (zero || i >= rows.classes) return 0.f;
    const float capped = cap(value);
    const float softmax = __expf(capped - lse);
    return (i == label.column ? softmax - 1.f : softmax) * cap.slope(capped) * weight;
  };
  const int64_t packs = rows.columns / kWide;  // kWide divides the columns, or is 1
  for (int64_t pack = threadIdx.x; pack < packs; pack += kThreads) {
    Pack<T, kWide> values = load<kWide>(z + pack * kWide);
#pragma unroll
    for (int i = 0; i < kWide; ++i) values[i] = T(gradient(pack * kWide + i, float(values[i])));
    store(z + pack * kWide, values);
  }
}

}  // namespace phx::kernels::cuda::entropy
