// A score is read once and what is made of it is written once, both in whole vectors; everything in
// between stays in registers.
#include <algorithm>
#include <climits>

#include "phalanx/base/math.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/attention_rows.h"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/cuda/reduce.cuh"

namespace phx::kernels::cuda {

namespace {

using phx::cuda::block_max;
using phx::cuda::block_sum;
using phx::cuda::kWarp;
using phx::cuda::load;
using phx::cuda::Pack;
using phx::cuda::Packed;
using phx::cuda::warp_sum;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
constexpr int kWide = 4;  // scores of an access: 16 bytes in f32

template <class F>
void for_small_dtype(DType dtype, F&& f) {
  PHX_CHECK(dtype == DType::bf16 || dtype == DType::f16,
            "attention by products takes bf16 and f16, not ", dtype);
  if (dtype == DType::bf16)
    f.template operator()<bf16>();
  else
    f.template operator()<f16>();
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// How a score is capped. tanh(x) = 1 - 2 / (1 + e^2x) is off by about 2e-7, so a capped score by
// 2e-7 of the cap: 1e-5 at a cap of 50, where a weight's own rounding to bf16 is 2e-3. (The GPU's
// tanh.approx is off by 5e-4 of its value: 0.012 at a score of 25.)
struct Cap {
  float in;   // of a score, to 2 x / cap in units of log2
  float out;  // of tanh, to a score in units of log2

  __device__ float tanh(float score) const {
    return 1.f - __fdividef(2.f, 1.f + exp2_fast(score * in));
  }
};

// The keys that a query sees, counted from the first of a block.
struct Seen {
  int causal, window, shift;  // shift: position of query 0, less the block's first key
  __device__ int begin(int query) const { return window < 0 ? INT_MIN : query + shift - window; }
  __device__ int end(int query, int keys) const {
    return causal ? min(keys, query + shift + 1) : keys;
  }
};

struct BlockShape {
  int group, first_query, keys, rows;  // rows: of a key head
  int64_t row;                         // of scores
  int64_t sq;
  Seen seen;
  Cap cap;
  float scale;
};

BlockShape shape_of(const ScoreBlock& block, const ScoreOptions& options) {
  return {.group = narrow<int>(block.group),
          .first_query = narrow<int>(block.first_query),
          .keys = narrow<int>(block.keys),
          .rows = narrow<int>(block.rows()),
          .row = block.row,
          .sq = options.sq,
          .seen = {.causal = options.causal,
                   .window = narrow<int>(std::min(options.window, options.sk)),
                   .shift = narrow<int>(options.sk - options.sq - block.first_key)},
          .cap = {.in = float(2 * double{kLog2E} * options.scale / options.softcap),
                  .out = float(options.softcap * double{kLog2E})},
          .scale = float(options.scale)};
}

// A block of threads owns a row and holds it in registers, kVectors of 16 bytes a thread. The
// weights take the place of the scores, which is why all are read before the first is written.
constexpr int kRowThreads = 256;

template <class T, int kVectors>
__global__ void __launch_bounds__(kRowThreads)
    softmax_kernel(const BlockShape shape, float* __restrict__ scores, float* __restrict__ lse) {
  const int row = blockIdx.x, key_head = blockIdx.y;
  const int query = shape.first_query + row / shape.group, head = row % shape.group;
  const int begin = shape.seen.begin(query), end = shape.seen.end(query, shape.keys);
  float* at = scores + (int64_t{key_head} * shape.rows + row) * shape.row;

  float x[kVectors][kWide], top = -INFINITY;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int first = (v * kRowThreads + int(threadIdx.x)) * kWide;
    Pack<float, kWide> raw = {};
    if (first < end && first + kWide > begin) raw = load<kWide>(at + first);
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      const bool counts = first + i >= begin && first + i < end;
      x[v][i] = counts ? shape.cap.out * shape.cap.tanh(raw[i]) : -INFINITY;
      top = fmaxf(top, x[v][i]);
    }
  }
  top = block_max<kRowThreads>(top);
  float sum = 0.f;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      x[v][i] = exp2_fast(x[v][i] - top);
      sum += x[v][i];
    }
  }
  sum = block_sum<kRowThreads>(sum);
  const float inverse = 1.f / sum;
  T* weights = reinterpret_cast<T*>(at);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int first = (v * kRowThreads + int(threadIdx.x)) * kWide;
    if (first >= shape.row) continue;
    Pack<T, kWide> out;
#pragma unroll
    for (int i = 0; i < kWide; ++i) out[i] = T(x[v][i] * inverse);
    phx::cuda::store(weights + first, out);
  }
  if (threadIdx.x == 0)
    lse[int64_t{key_head * shape.group + head} * shape.sq + query] = (top + log2f(sum)) * kLn2;
}

// With the row's lse, every score is by itself: a thread owns four of them.
template <class T>
__global__ void __launch_bounds__(256)
    differentiate_kernel(const BlockShape shape, const float* __restrict__ scores,
                         const float* __restrict__ dp, const float* __restrict__ lse,
                         const float* __restrict__ delta, T* __restrict__ weights,
                         T* __restrict__ ds, int64_t ds_row) {
  const int row = int(blockIdx.x * blockDim.y + threadIdx.y), key_head = blockIdx.y;
  const int first = int(threadIdx.x) * kWide;
  if (row >= shape.rows || first >= shape.row) return;
  const int query = shape.first_query + row / shape.group, head = row % shape.group;
  const int begin = shape.seen.begin(query), end = shape.seen.end(query, shape.keys);
  const int64_t at = (int64_t{key_head} * shape.rows + row) * shape.row + first;
  // Of all queries, not only of those of this block.
  const int64_t whole_row = (int64_t{key_head} * shape.sq + query) * shape.group + head;

  Pack<T, kWide> weight_out = {}, ds_out = {};
  if (first < end && first + kWide > begin) {
    const Pack<float, kWide> score = load<kWide>(scores + at), gradient = load<kWide>(dp + at);
    const float row_lse = lse[int64_t{key_head * shape.group + head} * shape.sq + query] * kLog2E;
    const float row_delta = delta[whole_row];
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      const bool counts = first + i >= begin && first + i < end;
      const float bent = shape.cap.tanh(score[i]);
      const float weight = counts ? exp2_fast(shape.cap.out * bent - row_lse) : 0.f;
      const float slope = weight * (gradient[i] - row_delta) * (1.f - bent * bent) * shape.scale;
      weight_out[i] = T(weight);
      ds_out[i] = T(counts ? slope : 0.f);
    }
  }
  phx::cuda::store(weights + at, weight_out);
  phx::cuda::store(ds + whole_row * ds_row + first, ds_out);
}

// Heads of one sequence on the device.
template <class T>
struct Rows {
  T* data;
  int64_t stride_s, stride_g, stride_h;
  __device__ T* at(int64_t row, int64_t key_head, int64_t head) const {
    return data + row * stride_s + key_head * stride_g + head * stride_h;
  }
};
template <class T>
Rows<T> rows(const HeadRows& x, int64_t d) {
  const int64_t wide = 16 / int64_t{sizeof(T)};
  PHX_CHECK(x.at % 16 == 0 && x.stride_s % wide == 0 && x.stride_g % wide == 0 &&
                x.stride_h % wide == 0 && d % wide == 0,
            "attention by products needs heads that begin at multiples of 16 bytes");
  return {reinterpret_cast<T*>(x.at), x.stride_s, x.stride_g, x.stride_h};
}

// A thread owns 16 bytes. `from` null: zeros.
template <class T>
__global__ void __launch_bounds__(256)
    copy_kernel(const Rows<const T> from, const Rows<T> to, uint32_t count, uint32_t key_heads,
                uint32_t group, uint32_t vectors) {
  constexpr int kVector = Packed<T>::kWide;
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= count) return;
  const uint32_t vector = index % vectors, head = index / vectors % group;
  const uint32_t key_head = index / (vectors * group) % key_heads;
  const uint32_t row = index / (vectors * group * key_heads);
  Packed<T> value = {};
  if (from.data != nullptr)
    value = Packed<T>::load(from.at(row, key_head, head) + vector * kVector);
  value.store(to.at(row, key_head, head) + vector * kVector);
}

// A warp owns a row of a head.
template <class T>
__global__ void __launch_bounds__(256)
    delta_kernel(const Rows<const T> o, const Rows<const T> d_o, const Rows<T> to,
                 float* __restrict__ delta, int64_t count, int key_heads, int group, int d,
                 int64_t sq) {
  constexpr int kVector = Packed<T>::kWide;
  const int64_t index = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
  if (index >= count) return;  // whole warps leave together
  const int head = int(index % group), key_head = int(index / group % key_heads);
  const int64_t row = index / (group * key_heads);
  float sum = 0.f;
  for (int c = int(threadIdx.x % kWarp) * kVector; c < d; c += kWarp * kVector) {
    const Packed<T> a = Packed<T>::load(o.at(row, key_head, head) + c);
    const Packed<T> b = Packed<T>::load(d_o.at(row, key_head, head) + c);
    float x[kVector], y[kVector];
    a.open(x);
    b.open(y);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum += x[i] * y[i];
    if (to.data != nullptr) b.store(to.at(row, key_head, head) + c);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) delta[(key_head * sq + row) * group + head] = sum;
}

template <class T>
void launch_copy(const ProductDevice::Extent& extent, const Rows<const T>& from, const Rows<T>& to,
                 cudaStream_t stream) {
  const int64_t vectors = extent.d / Packed<T>::kWide;
  const int64_t count = extent.rows * extent.key_heads * extent.group * vectors;
  copy_kernel<T><<<phx::cuda::blocks_for(count, 256), 256, 0, stream>>>(
      from, to, phx::cuda::count32(count), uint32_t(extent.key_heads), uint32_t(extent.group),
      uint32_t(vectors));
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void copy_head_rows(DType dtype, const ProductDevice::Extent& extent, const HeadRows& from,
                    const HeadRows& to, cudaStream_t stream) {
  for_small_dtype(dtype, [&]<class T>() {
    launch_copy<T>(extent, rows<const T>(from, extent.d), rows<T>(to, extent.d), stream);
  });
}

void zero_head_rows(DType dtype, const ProductDevice::Extent& extent, const HeadRows& at,
                    cudaStream_t stream) {
  for_small_dtype(dtype, [&]<class T>() {
    launch_copy<T>(extent, Rows<const T>{}, rows<T>(at, extent.d), stream);
  });
}

void make_delta(DType dtype, const ProductDevice::Extent& extent, const HeadRows& o,
                const HeadRows& d_o, const HeadRows& to, uintptr_t delta, cudaStream_t stream) {
  const int64_t count = extent.rows * extent.key_heads * extent.group;
  for_small_dtype(dtype, [&]<class T>() {
    delta_kernel<T><<<phx::cuda::blocks_for(count, 256 / kWarp), 256, 0, stream>>>(
        rows<const T>(o, extent.d), rows<const T>(d_o, extent.d), rows<T>(to, extent.d),
        reinterpret_cast<float*>(delta), count, narrow<int>(extent.key_heads),
        narrow<int>(extent.group), narrow<int>(extent.d), extent.rows);
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void softmax_scores(const ScoreBlock& block, const ScoreOptions& options, cudaStream_t stream) {
  const BlockShape shape = shape_of(block, options);
  const dim3 grid(unsigned(block.rows()), unsigned(block.key_heads));
  float* lse = options.lse + block.lse_head * options.sq;
  for_small_dtype(options.dtype, [&]<class T>() {
    const auto launch = [&]<int kVectors>() {
      softmax_kernel<T, kVectors>
          <<<grid, kRowThreads, 0, stream>>>(shape, reinterpret_cast<float*>(block.scores), lse);
    };
    const int64_t vectors = ceil_div(block.row, int64_t{kRowThreads * kWide});
    static_assert(16 * kRowThreads * kWide == kProductMostKeys);
    PHX_ASSERT(vectors <= 16, "attention by products: ", block.keys, " keys are too many");
    if (vectors <= 1)
      launch.template operator()<1>();
    else if (vectors <= 2)
      launch.template operator()<2>();
    else if (vectors <= 4)
      launch.template operator()<4>();
    else if (vectors <= 8)
      launch.template operator()<8>();
    else
      launch.template operator()<16>();
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void differentiate_scores(const ScoreBlock& block, const ProductDevice::Gradients& gradients,
                          const ScoreOptions& options, cudaStream_t stream) {
  const BlockShape shape = shape_of(block, options);
  // Whole warps for a row, and as many rows as make 256 threads.
  const int64_t threads = round_up(ceil_div(block.row, int64_t{kWide}), int64_t{kWarp});
  PHX_ASSERT(threads <= 256, "attention by products: a block of ", block.keys, " keys is too wide");
  const int64_t rows = 256 / threads;
  const dim3 grid(unsigned(ceil_div(block.rows(), rows)), unsigned(block.key_heads));
  for_small_dtype(options.dtype, [&]<class T>() {
    differentiate_kernel<T><<<grid, dim3(unsigned(threads), unsigned(rows)), 0, stream>>>(
        shape, reinterpret_cast<const float*>(block.scores),
        reinterpret_cast<const float*>(gradients.dp), options.lse + block.lse_head * options.sq,
        reinterpret_cast<const float*>(gradients.delta), reinterpret_cast<T*>(gradients.weights),
        reinterpret_cast<T*>(gradients.ds) + block.first_key, gradients.ds_row);
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
