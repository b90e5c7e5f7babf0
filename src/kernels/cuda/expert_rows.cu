// How many rows there are is read from offsets[e] on the device: grids cover the room for rows, and
// what lies behind the last row leaves at once.
#include <algorithm>

#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/activation_math.h"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/cuda/reduce.cuh"
#include "phalanx/kernels/cuda/stable_sort.h"
#include "phalanx/kernels/expert_rows.h"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    expert_keys_kernel(const int* __restrict__ indices, int64_t first, int experts,
                       uint32_t* __restrict__ keys, uint32_t* __restrict__ values,
                       int* __restrict__ choice_of, int n, int room) {
  const int i = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i < room) choice_of[i] = -1;
  if (i >= n) return;
  const int64_t expert = indices[i] - first;
  const bool local = indices[i] >= 0 && expert >= 0 && expert < experts;
  keys[i] = local ? uint32_t(expert) : uint32_t(experts);  // those that are dropped come last
  values[i] = uint32_t(i);
}

// Thread i of n + 1 has the i-th row; where its expert is not that of the row before, those between
// begin here.
__global__ void __launch_bounds__(kThreads)
    expert_order_kernel(const uint32_t* __restrict__ keys, const uint32_t* __restrict__ values,
                        int experts, int* __restrict__ row_of, int* __restrict__ choice_of,
                        int* __restrict__ offsets, int n, int room) {
  const int i = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i > n) return;
  const int expert = i < n ? int(keys[i]) : experts;
  for (int e = i > 0 ? int(keys[i - 1]) + 1 : 0; e <= expert; ++e) offsets[e] = min(i, room);
  if (i == n) return;
  const bool kept = expert < experts && i < room;
  row_of[values[i]] = kept ? i : -1;
  if (kept) choice_of[i] = int(values[i]);
}

// A thread takes kWide neighbouring channels of kRounds rows' pieces, kThreads apart, so that
// several loads are on their way at once. per_row pieces make a row.
constexpr int kRounds = 4;

template <class T, int kWide>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const T* __restrict__ x, const int* __restrict__ source, uint32_t per_source,
                  T* __restrict__ y, uint32_t count, uint32_t per_row) {
  const uint32_t first = blockIdx.x * (kThreads * kRounds) + threadIdx.x;
  Pack<T, kWide> values[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int j = 0; j < kWide; ++j) values[round][j] = T(0.f);
    const uint32_t i = first + round * kThreads;
    if (i >= count) continue;
    const uint32_t row = i / per_row, piece = i - row * per_row;
    const int from = source[row];
    if (from >= 0)
      values[round] =
          load<kWide>(x + (int64_t{uint32_t(from) / per_source} * per_row + piece) * kWide);
  }
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const uint32_t i = first + round * kThreads;
    if (i < count) store(y + int64_t{i} * kWide, values[round]);
  }
}

// A thread takes kWide channels of a token, and kBatch of its rows at a time.
template <class T, int kWide>
__global__ void __launch_bounds__(kThreads)
    sum_rows_kernel(const T* __restrict__ x, const int* __restrict__ row_of, int k,
                    T* __restrict__ out, bool keep, uint32_t count, uint32_t per_row) {
  constexpr int kBatch = 8;
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const uint32_t token = i / per_row, piece = i - token * per_row;
  const int* rows = row_of + int64_t{token} * k;
  float sums[kWide] = {};
  if (keep) {
    const Pack<T, kWide> old = load<kWide>(out + int64_t{i} * kWide);
#pragma unroll
    for (int c = 0; c < kWide; ++c) sums[c] = float(old[c]);
  }
  for (int first = 0; first < k; first += kBatch) {
    Pack<T, kWide> values[kBatch];
    bool there[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int row = first + j < k ? rows[first + j] : -1;
      there[j] = row >= 0;
      if (there[j]) values[j] = load<kWide>(x + (int64_t{row} * per_row + piece) * kWide);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (!there[j]) continue;
#pragma unroll
      for (int c = 0; c < kWide; ++c) sums[c] += float(values[j][c]);
    }
  }
  Pack<T, kWide> result;
#pragma unroll
  for (int c = 0; c < kWide; ++c) result[c] = T(sums[c]);
  store(out + int64_t{i} * kWide, result);
}

// One block: where the rows of (sender, expert) begin as they came, `before` [g e + 1], and in the
// order of the experts, `after` [g e + 1], both at sender * e + expert.
constexpr int kScanThreads = 1024;

// The sum of the values of all threads before this one; `total` of all.
__device__ int scan_block(int value, int& total) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  int sum = value;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_up_sync(kAll, sum, step);
    if (lane >= step) sum += other;
  }
  __shared__ int warps[kScanThreads / kWarp];
  __syncthreads();  // the last scan's readers are through
  if (lane == kWarp - 1) warps[warp] = sum;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int w = 0; w < kScanThreads / kWarp; ++w) {
    if (w < warp) before += warps[w];
    total += warps[w];
  }
  return before + sum - value;
}

__global__ void __launch_bounds__(kScanThreads)
    block_starts_kernel(const int* __restrict__ counts, int stride, int g, int e,
                        int* __restrict__ before, int* __restrict__ after,
                        int* __restrict__ offsets, int room) {
  const int cells = g * e;
  int seen = 0, merged = 0, total = 0;
  for (int first = 0; first < cells; first += kScanThreads) {
    const int i = first + int(threadIdx.x);
    const int start = seen + scan_block(i < cells ? counts[i / e * stride + i % e] : 0, total);
    if (i < cells) before[i] = start;
    seen += total;
    const int expert = i / g, sender = i % g;
    const int place = merged + scan_block(i < cells ? counts[sender * stride + expert] : 0, total);
    if (i < cells) {
      after[sender * e + expert] = place;
      if (sender == 0) offsets[expert] = min(place, room);
    }
    merged += total;
  }
  if (threadIdx.x != 0) return;
  before[cells] = seen;
  offsets[e] = min(seen, room);
}

__global__ void __launch_bounds__(kThreads)
    expert_counts_kernel(const int* __restrict__ offsets, int* __restrict__ counts, int e) {
  const int i = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i < e) counts[i] = offsets[i + 1] - offsets[i];
}

__global__ void __launch_bounds__(kThreads)
    merge_kernel(const int* __restrict__ before, const int* __restrict__ after, int cells,
                 int* __restrict__ source, int* __restrict__ place, int room) {
  const int i = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i >= room) return;
  if (i >= before[cells]) {
    place[i] = -1;
    return;
  }
  int low = 0, high = cells;  // the cell with before[low] <= i < before[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (before[middle] <= i ? low : high) = middle;
  }
  const int row = after[low] + i - before[low];
  place[i] = row < room ? row : -1;
  if (row < room) source[row] = i;
}

struct CudaMath {
  static __device__ __forceinline__ float exp(float x) { return expf(x); }
  static __device__ __forceinline__ float erf(float x) { return erff(x); }
  static __device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
};

// A warp a row, each lane kWide channels at a time.
constexpr int kRowsABlock = kThreads / kWarp;

template <class T, Activation kKind, bool kGated, int kWide>
__global__ void __launch_bounds__(kThreads)
    activate_weighted_kernel(const T* __restrict__ x, const float* __restrict__ probs,
                             const int* __restrict__ used, T* __restrict__ y, int f) {
  const int64_t row = int64_t{blockIdx.x} * kRowsABlock + threadIdx.x / kWarp;
  if (row >= *used) return;
  const T* gate = x + row * f * (kGated ? 2 : 1);
  const float p = probs[row];
#pragma unroll 2
  for (int c = int(threadIdx.x) % kWarp * kWide; c < f; c += kWarp * kWide) {
    const Pack<T, kWide> g = load<kWide>(gate + c);
    Pack<T, kWide> u, out;
    if constexpr (kGated) u = load<kWide>(gate + f + c);
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      float value = activation_at<kKind, CudaMath>(float(g[j])).value;
      if constexpr (kGated) value *= float(u[j]);
      out[j] = T(p * value);
    }
    store(y + row * f + c, out);
  }
}

template <class T, Activation kKind, bool kGated, int kWide>
__global__ void __launch_bounds__(kThreads)
    activate_weighted_backward_kernel(const T* __restrict__ x, const float* __restrict__ probs,
                                      const int* __restrict__ used, const T* __restrict__ dy,
                                      T* __restrict__ dx, float* __restrict__ dprobs, int f,
                                      int64_t room) {
  const int64_t row = int64_t{blockIdx.x} * kRowsABlock + threadIdx.x / kWarp;
  if (row >= room) return;  // whole warps leave together
  const int lane = int(threadIdx.x) % kWarp;
  if (row >= *used) {
    if (lane == 0) dprobs[row] = 0.f;
    return;
  }
  const int64_t at = row * f * (kGated ? 2 : 1);
  const float p = probs[row];
  float dp = 0.f;
#pragma unroll 2
  for (int c = lane * kWide; c < f; c += kWarp * kWide) {
    const Pack<T, kWide> g = load<kWide>(x + at + c), d = load<kWide>(dy + row * f + c);
    Pack<T, kWide> u, dgate, dup;
    if constexpr (kGated) u = load<kWide>(x + at + f + c);
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      const auto act = activation_at<kKind, CudaMath>(float(g[j]));
      float factor = 1.f;
      if constexpr (kGated) factor = float(u[j]);
      dp += float(d[j]) * act.value * factor;
      dgate[j] = T(p * float(d[j]) * factor * act.slope);
      if constexpr (kGated) dup[j] = T(p * float(d[j]) * act.value);
    }
    store(dx + at + c, dgate);
    if constexpr (kGated) store(dx + at + f + c, dup);
  }
  dp = warp_sum(dp);
  if (lane == 0) dprobs[row] = dp;
}

// f<T, kWide>() for the type and the vector width.
template <class F>
void for_width(DType dtype, bool vectors, F&& f) {
  for_gpu_dtype(dtype, [&]<class T>() {
    if (vectors)
      f.template operator()<T, kVector<T>>();
    else
      f.template operator()<T, 1>();
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

// f<T, kind, gated, kWide>()
template <class F>
void for_activations(DType dtype, const ExpertActivation& activation, bool vectors, F&& f) {
  for_width(dtype, vectors, [&]<class T, int kWide>() {
    for_activation(activation.kind, [&]<Activation kKind>() {
      if (activation.gated)
        f.template operator()<T, kKind, true, kWide>();
      else
        f.template operator()<T, kKind, false, kWide>();
    });
  });
}

const int* rows_used(const Tensor& offsets) {
  return offsets.data<int32_t>() + (offsets.numel() - 1);
}

// A warp a row: y = factor x, or backward dx = factor dy and dfactor = dy . x.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scale_rows_kernel(const T* __restrict__ x, const float* __restrict__ factors, T* __restrict__ y,
                      int64_t rows, int h) {
  const int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (row >= rows) return;  // whole warps leave together
  const float factor = factors[row];
  for (int i = int(threadIdx.x) % kWarp; i < h; i += kWarp)
    y[row * h + i] = T(factor * float(x[row * h + i]));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scale_rows_backward_kernel(const T* __restrict__ x, const float* __restrict__ factors,
                               const T* __restrict__ dy, T* __restrict__ dx,
                               float* __restrict__ dfactors, int64_t rows, int h) {
  const int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  if (row >= rows) return;  // whole warps leave together
  const float factor = factors[row];
  float dot = 0.f;
  for (int i = int(threadIdx.x) % kWarp; i < h; i += kWarp) {
    const float d = float(dy[row * h + i]);
    dot += d * float(x[row * h + i]);
    dx[row * h + i] = T(factor * d);
  }
  dot = warp_sum(dot);
  if (threadIdx.x % kWarp == 0) dfactors[row] = dot;
}

}  // namespace

void sort_by_expert(const Tensor& indices, int64_t first, Tensor& workspace, Tensor& row_of,
                    Tensor& choice_of, Tensor& offsets) {
  const int n = narrow<int>(indices.numel()), e = narrow<int>(offsets.numel() - 1);
  const int room = narrow<int>(choice_of.numel());
  const cudaStream_t stream = stream_of(indices);
  const SortArrays<uint32_t> a = sort_arrays<uint32_t>(workspace, n);
  expert_keys_kernel<<<blocks_for(std::max({n, room, 1}), kThreads), kThreads, 0, stream>>>(
      indices.data<int32_t>(), first, e, a.keys, a.values, choice_of.data<int32_t>(), n, room);
  PHX_CUDA_CHECK(cudaGetLastError());
  if (n > 0) sort_pairs(a, bits_of(e), stream);
  expert_order_kernel<<<blocks_for(n + 1, kThreads), kThreads, 0, stream>>>(
      a.sorted_keys, a.sorted_values, e, row_of.data<int32_t>(), choice_of.data<int32_t>(),
      offsets.data<int32_t>(), n, room);
  PHX_CUDA_CHECK(cudaGetLastError());
}

void gather_rows(const Tensor& x, const Tensor& source, int64_t per_row, Tensor& y) {
  if (y.numel() == 0) return;
  const int64_t h = y.numel() / y.dim(0);
  for_width(x.dtype(), vectorizable(h, x, y), [&]<class T, int kWide>() {
    const auto count = count32(y.numel() / kWide);
    gather_kernel<T, kWide><<<blocks_for(count, kThreads * kRounds), kThreads, 0, stream_of(y)>>>(
        x.data<T>(), source.data<int32_t>(), count32(per_row), y.data<T>(), count,
        uint32_t(h / kWide));
  });
}

void sum_rows(const Tensor& x, const Tensor& row_of, const Sink& out) {
  if (out.tensor.numel() == 0) return;
  const int64_t t = row_of.dim(0), h = out.tensor.numel() / t;
  for_width(x.dtype(), vectorizable(h, x, out.tensor), [&]<class T, int kWide>() {
    const auto count = count32(out.tensor.numel() / kWide);
    sum_rows_kernel<T, kWide><<<blocks_for(count, kThreads), kThreads, 0, stream_of(x)>>>(
        x.data<T>(), row_of.data<int32_t>(), narrow<int>(row_of.numel() / t), out.tensor.data<T>(),
        out.beta != 0.f, count, uint32_t(h / kWide));
  });
}

void expert_counts(const Tensor& offsets, Tensor& counts) {
  const int e = narrow<int>(counts.numel());
  expert_counts_kernel<<<blocks_for(e, kThreads), kThreads, 0, stream_of(offsets)>>>(
      offsets.data<int32_t>(), counts.data<int32_t>(), e);
  PHX_CUDA_CHECK(cudaGetLastError());
}

void merge_by_expert(const Tensor& counts, int64_t first, Tensor& workspace, Tensor& source,
                     Tensor& place, Tensor& offsets) {
  const int g = narrow<int>(counts.dim(0)), e = narrow<int>(offsets.numel() - 1);
  const int room = narrow<int>(source.numel());
  const cudaStream_t stream = stream_of(counts);
  int *before = workspace.data<int32_t>(), *after = before + g * e + 1;
  block_starts_kernel<<<1, kScanThreads, 0, stream>>>(counts.data<int32_t>() + first,
                                                      narrow<int>(counts.dim(1)), g, e, before,
                                                      after, offsets.data<int32_t>(), room);
  PHX_CUDA_CHECK(cudaGetLastError());
  if (room == 0) return;
  PHX_CUDA_CHECK(cudaMemsetAsync(source.raw(), 0xff, size_t(source.bytes()), stream));  // -1
  merge_kernel<<<blocks_for(room, kThreads), kThreads, 0, stream>>>(
      before, after, g * e, source.data<int32_t>(), place.data<int32_t>(), room);
  PHX_CUDA_CHECK(cudaGetLastError());
}

void scale_rows(const Tensor& x, const Tensor& factors, Tensor& y) {
  if (x.numel() == 0) return;
  const int64_t rows = x.dim(0);
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    scale_rows_kernel<T><<<blocks_for(rows * kWarp, kThreads), kThreads, 0, stream_of(x)>>>(
        x.data<T>(), factors.data<float>(), y.data<T>(), rows, narrow<int>(x.dim(-1)));
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void scale_rows_backward(const Tensor& x, const Tensor& factors, const Tensor& dy, Tensor& dx,
                         Tensor& dfactors) {
  if (x.numel() == 0) return;
  const int64_t rows = x.dim(0);
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    scale_rows_backward_kernel<T>
        <<<blocks_for(rows * kWarp, kThreads), kThreads, 0, stream_of(x)>>>(
            x.data<T>(), factors.data<float>(), dy.data<T>(), dx.data<T>(), dfactors.data<float>(),
            rows, narrow<int>(x.dim(-1)));
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void activate_weighted(const Tensor& x, const Tensor& probs, const Tensor& offsets,
                       const ExpertActivation& activation, Tensor& y) {
  if (y.numel() == 0) return;
  const int64_t f = y.dim(-1), room = y.numel() / f;
  for_activations(x.dtype(), activation, vectorizable(f, x, y),
                  [&]<class T, Activation kKind, bool kGated, int kWide>() {
                    activate_weighted_kernel<T, kKind, kGated, kWide>
                        <<<blocks_for(room, kRowsABlock), kThreads, 0, stream_of(x)>>>(
                            x.data<T>(), probs.data<float>(), rows_used(offsets), y.data<T>(),
                            narrow<int>(f));
                  });
}

void activate_weighted_backward(const Tensor& x, const Tensor& probs, const Tensor& offsets,
                                const Tensor& dy, const ExpertActivation& activation, Tensor& dx,
                                Tensor& dprobs) {
  if (dy.numel() == 0) return;
  const int64_t f = dy.dim(-1), room = dy.numel() / f;
  for_activations(x.dtype(), activation, vectorizable(f, x, dy, dx),
                  [&]<class T, Activation kKind, bool kGated, int kWide>() {
                    activate_weighted_backward_kernel<T, kKind, kGated, kWide>
                        <<<blocks_for(room, kRowsABlock), kThreads, 0, stream_of(x)>>>(
                            x.data<T>(), probs.data<float>(), rows_used(offsets), dy.data<T>(),
                            dx.data<T>(), dprobs.data<float>(), narrow<int>(f), room);
                  });
}

}  // namespace phx::kernels::cuda
