// A block for each row. Its threads stride over the row in packs of 16 bytes where rows are aligned
// to them, in single elements otherwise. Statistics are one pass: each thread keeps its largest
// logit and the sum of exponentials relative to it, and the threads' pairs are merged in a fixed
// tree.
//
// The loss with its gradient reads a row twice, and should read memory once: the packs that were
// read last stay in registers, and the others are walked backwards, so that the most recent ones
// are still in the L2 cache.
#include <cuda_runtime.h>

#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cross_entropy.h"
#include "phalanx/kernels/cuda/reduce.cuh"

namespace phx::kernels::cuda {

namespace {

using phx::cuda::kWarp;
using phx::cuda::load;
using phx::cuda::Pack;
using phx::cuda::Packed;
using phx::cuda::store;

constexpr int kThreads = 512;  // a row of 32000 bf16 is 8 packs a thread
constexpr int kSumThreads = 1024;

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

template <class F>
void with_cap(double softcap, F&& f) {
  if (softcap != 0)
    f(Softcap{float(softcap), float(1 / softcap)});
  else
    f(NoCap{});
}

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

__device__ Label label_of(const Rows& rows, int64_t row) {
  const int64_t label = rows.wide_labels ? static_cast<const int64_t*>(rows.labels)[row]
                                         : static_cast<const int32_t*>(rows.labels)[row];
  const bool ignored = label == rows.ignore_index;
  const int64_t column = label - rows.first_class;
  return {!ignored && column >= 0 && column < rows.classes ? column : -1, ignored,
          ignored || (label >= 0 && label < rows.vocab)};
}

__device__ float weight_of(const Rows& rows, int64_t row) {
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
__device__ Partial block_merge_in(Partial x) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ Partial parts[kWarps];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  x = warp_merge<kBase2>(x);
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  return warp_merge<kBase2>(lane < kWarps ? parts[lane] : Partial{-INFINITY, 0.f});
}

__device__ Partial block_merge(Partial x) { return block_merge_in<false>(x); }
__device__ Partial block_merge_base2(Partial x) { return block_merge_in<true>(x); }

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

__device__ Loss row_loss(const Statistics& s, const Label& label) {
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

constexpr int kHeld = 8;   // packs a thread keeps
constexpr int kBatch = 4;  // packs on their way at once
constexpr float kLog2e = 1.4426950408889634f;

// 2^x, one instruction.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Loss and gradient of one row without a softcap. An element costs a handful of instructions in
// each pass, so that memory is what takes time: exponents are one multiply-add (in base 2, and in
// the gradient with the row's weight in them), and what is special about the label is put right
// afterwards by one thread. Columns past the classes come after the whole packs.
template <class T>
__device__ void held_row(T* z, const Rows& rows, const Label& label, float weight,
                         float* loss_out) {
  using Values = Packed<T>;
  constexpr int kWide = Values::kWide;
  const int thread = int(threadIdx.x), packs = int(rows.classes / kWide);
  const int first_rest = packs * kWide;  // fewer than kWide classes, then padding
  const float target = label.column >= 0 ? float(z[label.column]) : 0.f;

  // The sum of 2^(z log2e - base), where base is the largest exponent so far.
  Partial mine{-INFINITY, 0.f};
  const auto add = [&]<int kN>(Values(&in)[kN], const bool(&there)[kN]) {
    float largest = -INFINITY;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!there[j]) continue;
      float values[kWide];
      in[j].open(values);
#pragma unroll
      for (int i = 0; i < kWide; ++i) largest = fmaxf(largest, values[i]);
      in[j].forget_opened();
    }
    largest = fmaxf(mine.largest, largest * kLog2e);
    const float base = largest == -INFINITY ? 0.f : largest;  // -inf - -inf would be nan
    float sum = mine.sum * exp2_fast(mine.largest - base);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!there[j]) continue;
      float values[kWide];
      in[j].open(values);
#pragma unroll
      for (int i = 0; i < kWide; ++i) sum += exp2_fast(fmaf(values[i], kLog2e, -base));
      in[j].forget_opened();
    }
    mine = {largest, sum};
  };

  // First what is not kept: packs from kHeld * kThreads on, in rounds of kBatch * kThreads.
  constexpr int kFirst = kHeld * kThreads, kRound = kBatch * kThreads;
  const int rounds = packs > kFirst ? (packs - kFirst + kRound - 1) / kRound : 0;
  const auto load_round = [&](int round, Values(&values)[kBatch], bool(&there)[kBatch]) {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int pack = kFirst + round * kRound + j * kThreads + thread;
      there[j] = pack < packs;
      if (there[j]) values[j] = Values::load(z + int64_t{pack} * kWide);
    }
  };
  for (int round = 0; round < rounds; ++round) {
    Values values[kBatch];
    bool there[kBatch];
    load_round(round, values, there);
    add(values, there);
  }
  Values held[kHeld];
  bool kept[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    kept[j] = j * kThreads + thread < packs;
    if (kept[j]) held[j] = Values::load(z + int64_t{j * kThreads + thread} * kWide);
  }
  add(held, kept);
  for (int i = first_rest + thread; i < int(rows.classes); i += kThreads)
    mine = merge_base2(mine, {float(z[i]) * kLog2e, 1.f});
  const Partial all = block_merge_base2(mine);  // its barrier: everybody has read the label's logit
  const Loss loss =
      row_loss({all.largest * (1.f / kLog2e), all.sum, target}, label);  // ln of the sum, as ever
  if (thread == 0) *loss_out = loss.loss;

  if (label.ignored || weight == 0.f) {  // no gradient, whatever the logits are
    for (int pack = thread; pack < packs; pack += kThreads)
      Values{{0u, 0u, 0u, 0u}}.store(z + int64_t{pack} * kWide);
    for (int i = first_rest + thread; i < int(rows.columns); i += kThreads) z[i] = T(0.f);
    return;
  }
  // dz = weight e^(z - lse) = sign(weight) 2^(z log2e + magnitude)
  const float magnitude = log2f(fabsf(weight)) - loss.lse * kLog2e;
  const float sign = copysignf(1.f, weight);
  const auto write_gradient = [&](const Values& in, int pack) {
    float values[kWide];
    in.open(values);
#pragma unroll
    for (int i = 0; i < kWide; ++i)
      values[i] = sign * exp2_fast(fmaf(values[i], kLog2e, magnitude));
    Values::close(values).store(z + int64_t{pack} * kWide);
  };
#pragma unroll
  for (int j = 0; j < kHeld; ++j)
    if (kept[j]) write_gradient(held[j], j * kThreads + thread);
  for (int round = rounds - 1; round >= 0; --round) {
    Values values[kBatch];
    bool there[kBatch];
    load_round(round, values, there);
#pragma unroll
    for (int j = 0; j < kBatch; ++j)
      if (there[j]) write_gradient(values[j], kFirst + round * kRound + j * kThreads + thread);
  }
  for (int i = first_rest + thread; i < int(rows.columns); i += kThreads) {
    const float softmax = i < int(rows.classes) ? __expf(float(z[i]) - loss.lse) : 0.f;
    z[i] = T(softmax * weight);
  }
  if (label.column < 0) return;
  __syncthreads();  // the label's element was written above, by whoever has it
  if (thread == 0) z[label.column] = T((__expf(target - loss.lse) - 1.f) * weight);
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
