// A block for each row. Its threads stride over the row in packs of 16 bytes where rows are aligned
// to them, in single elements otherwise. Statistics are one pass: each thread keeps its largest
// logit and the sum of exponentials relative to it, and the threads' pairs are merged in a fixed
// tree.
// The pieces are in cross_entropy_row.cuh; cross_entropy_held.cuh has the loss with its gradient.
#include <cuda_runtime.h>

#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cross_entropy.h"
#include "phalanx/kernels/cuda/cross_entropy_held.cuh"
#include "phalanx/kernels/cuda/cross_entropy_row.cuh"
#include "phalanx/kernels/cuda/reduce.cuh"

namespace phx::kernels::cuda {

namespace {

using namespace entropy;
using phx::cuda::load;
using phx::cuda::Pack;
using phx::cuda::store;

constexpr int kSumThreads = 1024;

template <class F>
void with_cap(double softcap, F&& f) {
  if (softcap != 0)
    f(Softcap{float(softcap), float(1 / softcap)});
  else
    f(NoCap{});
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    held_gradient_kernel(T* logits, Rows rows, float* __restrict__ losses) {
  const int64_t row = blockIdx.x;
  held_row(logits + row * rows.columns, rows, label_of(rows, row), weight_of(rows, row),
           losses + row);
}

template <int kWide, class T, class Cap>
__global__ void statistics_kernel(const T* __restrict__ logits, Rows rows, Cap cap,
                                  float* __restrict__ statistics) {
  const int64_t row = blockIdx.x;
  const Statistics s =
      row_statistics<kWide>(logits + row * rows.columns, rows.classes, label_of(rows, row), cap);
  if (threadIdx.x == 0) {
    statistics[row * 3] = s.largest;
    statistics[row * 3 + 1] = s.sum;
    statistics[row * 3 + 2] = s.target;
  }
}

template <int kWide, class T, class Cap>
__global__ void gradient_kernel(T* __restrict__ logits, Rows rows, Cap cap,
                                const float* __restrict__ lse) {
  const int64_t row = blockIdx.x;
  row_gradient<kWide>(logits + row * rows.columns, rows, label_of(rows, row), lse[row],
                      weight_of(rows, row), cap);
}

template <int kWide, class T, class Cap>
__global__ void with_gradient_kernel(T* logits, Rows rows, Cap cap, float* __restrict__ losses) {
  const int64_t row = blockIdx.x;
  T* z = logits + row * rows.columns;
  const Label label = label_of(rows, row);
  const Loss loss = row_loss(row_statistics<kWide>(z, rows.classes, label, cap), label);
  __syncthreads();  // every thread has read the label's logit; now the row may change
  row_gradient<kWide>(z, rows, label, loss.lse, weight_of(rows, row), cap);
  if (threadIdx.x == 0) losses[row] = loss.loss;
}

// A thread for each row.
__global__ void losses_kernel(const float* __restrict__ statistics, Rows rows, int64_t num_rows,
                              int64_t ranks, float* __restrict__ lse, float* __restrict__ losses) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= num_rows) return;
  const Loss loss =
      row_loss(row_of_all_ranks(statistics, num_rows, ranks, row), label_of(rows, row));
  lse[row] = loss.lse;
  losses[row] = loss.loss;
}

// One block: the sum of a micro-batch's token losses is a few thousand additions. In f64, so that
// its order hardly matters; fixed all the same.
__global__ void masked_sum_kernel(const float* __restrict__ losses, const float* __restrict__ mask,
                                  int64_t n, float* __restrict__ sum) {
  __shared__ double parts[kSumThreads];
  double total = 0;
  for (int64_t i = threadIdx.x; i < n; i += kSumThreads) {
    const float weight = mask != nullptr ? mask[i] : 1.f;
    if (weight != 0.f) total += double(losses[i]) * double(weight);
  }
  parts[threadIdx.x] = total;
  for (int half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *sum = float(parts[0]);
}

template <int kWide, class T>
__global__ void softcap_kernel(T* __restrict__ logits, int64_t packs, Softcap cap) {
  const int64_t pack = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (pack >= packs) return;
  Pack<T, kWide> values = load<kWide>(logits + pack * kWide);
#pragma unroll
  for (int i = 0; i < kWide; ++i) values[i] = T(cap(float(values[i])));
  store(logits + pack * kWide, values);
}

const float* floats(const Tensor& x) { return x.defined() ? x.data<float>() : nullptr; }

Rows rows_of(int64_t columns, const Tensor& labels, const RowWeights& weights,
             const CrossEntropyOptions& options) {
  return {.labels = labels.raw(),
          .wide_labels = labels.dtype() == DType::i64,
          .columns = columns,
          .classes = num_classes(columns, options),
          .vocab = options.vocab,
          .first_class = options.first_class,
          .ignore_index = options.ignore_index,
          .mask = floats(weights.mask),
          .scale = floats(weights.scale),
          .dloss = floats(weights.dloss)};
}

// f.operator()<T, kWide>(cap) with the widest packs that every row's start allows.
template <class F>
void for_logits(const Tensor& logits, double softcap, F&& f) {
  for_gpu_dtype(logits.dtype(), [&]<class T>() {
    constexpr int kWide = 16 / sizeof(T);
    const bool aligned =
        logits.dim(-1) % kWide == 0 && reinterpret_cast<uintptr_t>(logits.raw()) % 16 == 0;
    with_cap(softcap, [&](auto cap) {
      if (aligned)
        f.template operator()<T, kWide>(cap);
      else
        f.template operator()<T, 1>(cap);
    });
  });
}

cudaStream_t stream_of(const Tensor& x) {
  return static_cast<cudaStream_t>(x.device().compute_stream());
}

}  // namespace

void cross_entropy_statistics(const Tensor& logits, const Tensor& labels,
                              const CrossEntropyOptions& options, Tensor& statistics) {
  if (logits.numel() == 0) return;
  const Rows rows = rows_of(logits.dim(1), labels, {}, options);
  for_logits(logits, options.logit_softcap, [&]<class T, int kWide>(auto cap) {
    statistics_kernel<kWide><<<unsigned(logits.dim(0)), kThreads, 0, stream_of(logits)>>>(
        logits.data<T>(), rows, cap, statistics.data<float>());
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void cross_entropy_losses(const Tensor& statistics, const Tensor& labels,
                          const CrossEntropyOptions& options, Tensor& lse, Tensor& losses) {
  const int64_t num_rows = losses.numel();
  if (num_rows == 0) return;
  const unsigned blocks = unsigned((num_rows + kThreads - 1) / kThreads);
  losses_kernel<<<blocks, kThreads, 0, stream_of(statistics)>>>(
      statistics.data<float>(), rows_of(0, labels, {}, options), num_rows,
      statistics.dim(0) / num_rows, lse.data<float>(), losses.data<float>());
  PHX_CUDA_CHECK(cudaGetLastError());
}

void cross_entropy_gradient(Tensor& logits, const Tensor& labels, const Tensor& lse,
                            const RowWeights& weights, const CrossEntropyOptions& options) {
  if (logits.numel() == 0) return;
  const Rows rows = rows_of(logits.dim(1), labels, weights, options);
  for_logits(logits, options.logit_softcap, [&]<class T, int kWide>(auto cap) {
    gradient_kernel<kWide><<<unsigned(logits.dim(0)), kThreads, 0, stream_of(logits)>>>(
        logits.data<T>(), rows, cap, lse.data<float>());
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void cross_entropy_with_gradient(Tensor& logits, const Tensor& labels, const RowWeights& weights,
                                 const CrossEntropyOptions& options, Tensor& losses) {
  if (logits.numel() == 0) return;
  const Rows rows = rows_of(logits.dim(1), labels, weights, options);
  for_logits(logits, options.logit_softcap, [&]<class T, int kWide>(auto cap) {
    const unsigned blocks = unsigned(logits.dim(0));
    if constexpr (kWide > 1 && std::is_same_v<decltype(cap), NoCap>) {
      if (rows.columns < INT32_MAX) {
        held_gradient_kernel<<<blocks, kThreads, 0, stream_of(logits)>>>(logits.data<T>(), rows,
                                                                         losses.data<float>());
        return;
      }
    }
    with_gradient_kernel<kWide><<<blocks, kThreads, 0, stream_of(logits)>>>(
        logits.data<T>(), rows, cap, losses.data<float>());
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void masked_sum(const Tensor& losses, const Tensor& mask, Tensor& sum) {
  masked_sum_kernel<<<1, kSumThreads, 0, stream_of(losses)>>>(losses.data<float>(), floats(mask),
                                                              losses.numel(), sum.data<float>());
  PHX_CUDA_CHECK(cudaGetLastError());
}

void softcap(Tensor& logits, double cap) {
  if (logits.numel() == 0) return;
  for_logits(logits, cap, [&]<class T, int kWide>(auto capped) {
    if constexpr (std::is_same_v<decltype(capped), Softcap>) {
      const int64_t packs = logits.numel() / kWide;
      const unsigned blocks = unsigned((packs + kThreads - 1) / kThreads);
      softcap_kernel<kWide>
          <<<blocks, kThreads, 0, stream_of(logits)>>>(logits.data<T>(), packs, capped);
    }
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
