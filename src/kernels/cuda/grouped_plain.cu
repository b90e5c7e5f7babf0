// Grouped products on any GPU, in f32 arithmetic without tensor cores. A block takes a tile of 64 x
// 64 of one expert's result, a thread 4 x 4 of it.
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/kernels/cuda/grouped.h"
#include "phalanx/kernels/cuda/launch.cuh"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

constexpr int kTile = 64, kDepth = 16, kThreads = 256, kPart = 4;

// c [m, n] = a b + beta c, with a at i a_row + k a_k, b at k b_k + j b_column.
template <class T, class Out>
struct PlainProblem {
  const T *a, *b;
  Out* c;
  int64_t a_row, a_k, b_k, b_column;
  int m, n, k;
  float beta;
};

template <class T, class Out>
__device__ void multiply_tile(const PlainProblem<T, Out>& p, int first_row, int first_column) {
  __shared__ float a[kDepth][kTile + 1], b[kDepth][kTile + 1];
  const int thread = int(threadIdx.x), row = thread / 16 * kPart, column = thread % 16 * kPart;
  float sums[kPart][kPart] = {};
  for (int first = 0; first < p.k; first += kDepth) {
    for (int i = thread; i < kTile * kDepth; i += kThreads) {
      // Neighbouring threads read neighbouring numbers, whichever way the operand lies.
      const int ak = p.a_k == 1 ? i % kDepth : i / kTile, ai = p.a_k == 1 ? i / kDepth : i % kTile;
      const int bk = p.b_k == 1 ? i % kDepth : i / kTile, bi = p.b_k == 1 ? i / kDepth : i % kTile;
      const int64_t m = first_row + ai, n = first_column + bi;
      a[ak][ai] =
          m < p.m && first + ak < p.k ? float(p.a[m * p.a_row + (first + ak) * p.a_k]) : 0.f;
      b[bk][bi] =
          n < p.n && first + bk < p.k ? float(p.b[(first + bk) * p.b_k + n * p.b_column]) : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k)
#pragma unroll
      for (int i = 0; i < kPart; ++i)
#pragma unroll
        for (int j = 0; j < kPart; ++j)
          sums[i][j] = fmaf(a[k][row + i], b[k][column + j], sums[i][j]);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kPart; ++i)
#pragma unroll
    for (int j = 0; j < kPart; ++j) {
      const int64_t m = first_row + row + i, n = first_column + column + j;
      if (m >= p.m || n >= p.n) continue;
      Out* to = p.c + m * p.n + n;
      *to = Out(p.beta != 0.f ? float(*to) + sums[i][j] : sums[i][j]);
    }
}

// Block (x, y): the x-th tile of rows, counted over all experts; column tile y.
template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    plain_rows_kernel(PlainProblem<T, Out> p, int64_t matrix, const int* __restrict__ offsets,
                      int experts) {
  int tile = int(blockIdx.x), expert = 0;
  for (; expert < experts; ++expert) {
    const int tiles = (offsets[expert + 1] - offsets[expert] + kTile - 1) / kTile;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (expert == experts) return;  // the grid is for the most tiles that there can be
  const int64_t first = offsets[expert];
  p.m = offsets[expert + 1] - int(first);
  p.a += first * p.a_row;
  p.b += expert * matrix;
  p.c += first * p.n;
  multiply_tile(p, tile * kTile, int(blockIdx.y) * kTile);
}

// Block (x, y, z): row tile x and column tile y of expert z's matrix.
template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    plain_weights_kernel(PlainProblem<T, Out> p, const int* __restrict__ offsets) {
  const int64_t first = offsets[blockIdx.z];
  p.k = offsets[blockIdx.z + 1] - int(first);
  if (p.k == 0 && p.beta != 0.f) return;
  p.a += first * p.a_k;
  p.b += first * p.b_k;
  p.c += int64_t{blockIdx.z} * p.m * p.n;
  multiply_tile(p, int(blockIdx.x) * kTile, int(blockIdx.y) * kTile);
}

// f<T, Out>() for operands and a result of these types.
template <class F>
void for_types(const Tensor& operand, const Tensor& result, F&& f) {
  for_gpu_dtype(operand.dtype(), [&]<class T>() {
    for_gpu_dtype(result.dtype(), [&]<class Out>() { f.template operator()<T, Out>(); });
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void plain_grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                          const Sink& c) {
  if (c.tensor.numel() == 0) return;
  const int64_t e = w.dim(0), n = w.dim(1), k = w.dim(2), tiles = ceil_div(a.dim(0), kTile) + e;
  const dim3 grid(blocks_for(tiles, 1), blocks_for(c.tensor.dim(-1), kTile));
  for_types(a, c.tensor, [&]<class T, class Out>() {
    plain_rows_kernel<T, Out>
        <<<grid, kThreads, 0, stream_of(a)>>>({.a = a.data<T>(),
                                               .b = w.data<T>(),
                                               .c = c.tensor.data<Out>(),
                                               .a_row = a.dim(-1),
                                               .a_k = 1,
                                               .b_k = transposed ? k : 1,
                                               .b_column = transposed ? 1 : k,
                                               .m = 0,
                                               .n = narrow<int>(c.tensor.dim(-1)),
                                               .k = narrow<int>(a.dim(-1)),
                                               .beta = c.beta},
                                              n * k, offsets.data<int32_t>(), narrow<int>(e));
  });
}

void plain_grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                  const Sink& dw) {
  if (dw.tensor.numel() == 0) return;
  const int64_t e = dw.tensor.dim(0), n = dw.tensor.dim(1), k = dw.tensor.dim(2);
  const dim3 grid(blocks_for(n, kTile), blocks_for(k, kTile), blocks_for(e, 1));
  for_types(dy, dw.tensor, [&]<class T, class Out>() {
    plain_weights_kernel<T, Out><<<grid, kThreads, 0, stream_of(dy)>>>({.a = dy.data<T>(),
                                                                        .b = x.data<T>(),
                                                                        .c = dw.tensor.data<Out>(),
                                                                        .a_row = 1,
                                                                        .a_k = n,
                                                                        .b_k = k,
                                                                        .b_column = 1,
                                                                        .m = narrow<int>(n),
                                                                        .n = narrow<int>(k),
                                                                        .k = 0,
                                                                        .beta = dw.beta},
                                                                       offsets.data<int32_t>());
  });
}

}  // namespace phx::kernels::cuda
