// The backward of RMSNorm and LayerNorm, in the arrangement of norm_rows.cuh.
#pragma once

#include "phalanx/kernels/cuda/norm_row_parts.cuh"

namespace phx::kernels::cuda {

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

}  // namespace detail

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
