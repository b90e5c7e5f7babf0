// RMSNorm and LayerNorm are one pair of kernels: kMean says whether the mean is taken off (and a
// bias may be added). A row is read once and held in registers, by one warp (short rows, eight to a
// block) or by one block; rows too wide or not made of 16-byte vectors are walked element by
// element.
#pragma once

#include <cuda_runtime.h>

#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/cuda/reduce.cuh"

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

template <class T>
struct NormBackward {
  const T *x, *w, *dy;
  const float *mean, *rstd;
  T* dx;
  bool keep;          // add to dx
  float *dw, *dbias;  // partial sums [gridDim.x, h]; dbias is null for RMSNorm
  int64_t rows;
  int h;
  float shift;
};

namespace detail {

using namespace phx::cuda;

inline constexpr int kShortRows = 8;      // rows a block where a warp takes a row
inline constexpr int kWalkThreads = 256;  // of the element-by-element kernels

template <int kLanes>
__device__ __forceinline__ float row_sum(float x) {
  if constexpr (kLanes == kWarp)
    return warp_sum(x);
  else
    return block_sum<kLanes>(x);
}

// Several sums over a row's threads with one exchange.
template <int kLanes, int kN, int kAll>
__device__ __forceinline__ void row_sums(float (&x)[kAll]) {
#pragma unroll
  for (int i = 0; i < kN; ++i) x[i] = warp_sum(x[i]);
  if constexpr (kLanes > kWarp) {
    constexpr int kWarps = kLanes / kWarp;
    __shared__ float parts[kN][kWarps];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    __syncthreads();  // the last sums' readers are through
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < kN; ++i) parts[i][warp] = x[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kN; ++i) x[i] = warp_sum(lane < kWarps ? parts[i][lane] : 0.f);
  }
}

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

// Blocks that should share a multiprocessor: without being told, the compiler spends so many
// registers that only one fits, and memory waits.
constexpr int backward_blocks(int lanes, int vecs) {
  return lanes > 256 ? 1 : vecs == 1 ? 4 : vecs == 2 ? 3 : 2;
}

// Block g of the grid takes rows [rows g / grid, rows (g + 1) / grid), as row_block cuts them. Its
// threads keep dw (and dbias) of their columns in registers over all of them; where eight warps
// take a row each, they are added through shared memory in order of the warps at the end. Where the
// whole block takes a row, it takes kBatch of them at once: more bytes on their way, and two
// barriers for all of them.
template <class T, bool kMean, int kLanes, int kVecs>
__global__ void __launch_bounds__(kLanes == kWarp ? kWarp * kShortRows : kLanes,
                                  backward_blocks(kLanes, kVecs))
    norm_backward_kernel(NormBackward<T> a) {
  constexpr int kWide = kVector<T>, kRows = kLanes == kWarp ? kShortRows : 1;
  constexpr int kSums = kMean ? 2 : 1;
  constexpr int kBatch = kLanes > kWarp && kVecs == 1 ? 2 : 1;
  const int lane = int(threadIdx.x);
  const int64_t begin = a.rows * blockIdx.x / gridDim.x,
                end = a.rows * (blockIdx.x + 1) / gridDim.x;

  using Values = Packed<T>;
  Values w[kVecs];
  float sums[kSums][kVecs][kWide] = {};  // dw, dbias
  auto column_of = [&](int v) { return (v * kLanes + lane) * kWide; };
#pragma unroll
  for (int v = 0; v < kVecs; ++v)
    if (column_of(v) < a.h) w[v] = Values::load(a.w + column_of(v));

  for (int64_t first = begin + threadIdx.y; first < end; first += kRows * kBatch) {
    Values x[kBatch][kVecs], dy[kBatch][kVecs], old[kBatch][kVecs];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t row = first + b * kRows;
      if (row >= end) continue;
#pragma unroll
      for (int v = 0; v < kVecs; ++v) {
        if (column_of(v) >= a.h) continue;
        const int64_t at = row * a.h + column_of(v);
        x[b][v] = Values::load(a.x + at);
        dy[b][v] = Values::load(a.dy + at);
        if (a.keep) old[b][v] = Values::load(a.dx + at);
      }
    }
    float r[kBatch], mean[kBatch], moments[2 * kBatch];  // of g xhat and g, g = dy w
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t row = first + b * kRows;
      moments[b] = moments[kBatch + b] = 0.f;
      if (row >= end) continue;
      r[b] = a.rstd[row];
      mean[b] = kMean ? a.mean[row] : 0.f;
#pragma unroll
      for (int v = 0; v < kVecs; ++v) {
        if (column_of(v) >= a.h) continue;
        float xs[kWide], dys[kWide], ws[kWide];
        x[b][v].open(xs);
        dy[b][v].open(dys);
        w[v].open(ws);
#pragma unroll
        for (int j = 0; j < kWide; ++j) {
          const float xhat = (xs[j] - mean[b]) * r[b], g = dys[j] * (ws[j] + a.shift);
          moments[b] += g * xhat;
          if constexpr (kMean) moments[kBatch + b] += g;
          sums[0][v][j] += dys[j] * xhat;
          if constexpr (kMean) sums[1][v][j] += dys[j];
        }
        x[b][v].forget_opened();
        dy[b][v].forget_opened();
        w[v].forget_opened();
      }
    }
    row_sums<kLanes, kMean ? 2 * kBatch : kBatch>(moments);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t row = first + b * kRows;
      if (row >= end) continue;
      const float mean_gx = moments[b] / float(a.h);
      const float mean_g = kMean ? moments[kBatch + b] / float(a.h) : 0.f;
#pragma unroll
      for (int v = 0; v < kVecs; ++v) {
        if (column_of(v) >= a.h) continue;
        float xs[kWide], dys[kWide], ws[kWide], out[kWide] = {};
        x[b][v].open(xs);
        dy[b][v].open(dys);
        w[v].open(ws);
        if (a.keep) old[b][v].open(out);
#pragma unroll
        for (int j = 0; j < kWide; ++j) {
          const float xhat = (xs[j] - mean[b]) * r[b], g = dys[j] * (ws[j] + a.shift);
          out[j] += r[b] * (g - mean_g - xhat * mean_gx);
        }
        Values::close(out).store(a.dx + row * a.h + column_of(v));
        w[v].forget_opened();
      }
    }
  }

  __shared__ float shared[kRows > 1 ? kLanes * kVecs * kWide : 1];
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    float* out = (s == 0 ? a.dw : a.dbias) + int64_t{blockIdx.x} * a.h;
#pragma unroll
    for (int turn = 0; turn < kRows; ++turn) {
      if (int(threadIdx.y) == turn) {
#pragma unroll
        for (int v = 0; v < kVecs; ++v) {
          if (column_of(v) >= a.h) continue;
#pragma unroll
          for (int j = 0; j < kWide; ++j) {
            float sum = sums[s][v][j];
            if (turn > 0) sum += shared[column_of(v) + j];
            if (turn + 1 < kRows)
              shared[column_of(v) + j] = sum;
            else
              out[column_of(v) + j] = sum;
          }
        }
      }
      if constexpr (kRows > 1) __syncthreads();
    }
  }
}

// Any width, element by element. The partial sums live in the workspace: a thread keeps to its own
// columns, so nobody else reads or writes them.
template <class T, bool kMean>
__global__ void __launch_bounds__(kWalkThreads) norm_walk_backward_kernel(NormBackward<T> a) {
  const int64_t begin = a.rows * blockIdx.x / gridDim.x,
                end = a.rows * (blockIdx.x + 1) / gridDim.x;
  float* dw = a.dw + int64_t{blockIdx.x} * a.h;
  float* dbias = kMean ? a.dbias + int64_t{blockIdx.x} * a.h : nullptr;
  for (int i = int(threadIdx.x); i < a.h; i += kWalkThreads) {
    dw[i] = 0.f;
    if (kMean) dbias[i] = 0.f;
  }
  for (int64_t row = begin; row < end; ++row) {
    const T *x = a.x + row * a.h, *dy = a.dy + row * a.h;
    const float r = a.rstd[row], mean = kMean ? a.mean[row] : 0.f;
    float dot = 0.f, total = 0.f;
    for (int i = int(threadIdx.x); i < a.h; i += kWalkThreads) {
      const float g = float(dy[i]) * (float(a.w[i]) + a.shift);
      dot += g * (float(x[i]) - mean) * r;
      total += g;
    }
    const float mean_gx = block_sum<kWalkThreads>(dot) / float(a.h);
    const float mean_g = kMean ? block_sum<kWalkThreads>(total) / float(a.h) : 0.f;
    for (int i = int(threadIdx.x); i < a.h; i += kWalkThreads) {
      const float d = float(dy[i]), xhat = (float(x[i]) - mean) * r;
      dw[i] += d * xhat;
      if (kMean) dbias[i] += d;
      const float value = r * (d * (float(a.w[i]) + a.shift) - mean_g - xhat * mean_gx);
      T* out = a.dx + row * a.h + i;
      *out = T(a.keep ? float(*out) + value : value);
    }
  }
}

// Calls f<kLanes, kVecs>() for the smallest arrangement that holds a row of `vectors` vectors;
// false if none does.
template <class F>
bool for_row_width(int64_t vectors, F&& f) {
  if (vectors <= 32 * 2)
    f.template operator()<32, 2>();
  else if (vectors <= 32 * 3)
    f.template operator()<32, 3>();
  else if (vectors <= 32 * 4)
    f.template operator()<32, 4>();
  else if (vectors <= 256)
    f.template operator()<256, 1>();
  else if (vectors <= 256 * 2)
    f.template operator()<256, 2>();
  else if (vectors <= 256 * 4)
    f.template operator()<256, 4>();
  else if (vectors <= 512 * 4)
    f.template operator()<512, 4>();
  else
    return false;
  return true;
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

// `blocks` is the number of partial sums.
template <bool kMean, class T>
void launch_norm_backward(const NormBackward<T>& a, int64_t blocks, bool vectors,
                          cudaStream_t stream) {
  using namespace detail;
  const unsigned grid = blocks_for(blocks, 1);
  const bool held =
      vectors && for_row_width(a.h / kVector<T>, [&]<int kLanes, int kVecs>() {
        constexpr int kRows = kLanes == kWarp ? kShortRows : 1;
        norm_backward_kernel<T, kMean, kLanes, kVecs><<<grid, dim3(kLanes, kRows), 0, stream>>>(a);
      });
  if (!held) norm_walk_backward_kernel<T, kMean><<<grid, kWalkThreads, 0, stream>>>(a);
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
