#include <cub/device/device_radix_sort.cuh>

#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/embedding.h"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

constexpr int kThreads = 256;

// An id as a row of this rank's table; `rows` for a row of another rank.
struct LocalRow {
  const int64_t* wide;  // ids, one of the two
  const int32_t* slim;
  int64_t first_row;
  uint32_t rows;

  __device__ __forceinline__ uint32_t operator()(int64_t i) const {
    const int64_t row = (wide ? wide[i] : int64_t{slim[i]}) - first_row;
    return row >= 0 && row < rows ? uint32_t(row) : rows;
  }
};

LocalRow local_rows(const Tensor& ids, const EmbeddingOptions& options, int64_t rows) {
  const bool wide = ids.dtype() == DType::i64;
  return {.wide = wide ? ids.data<int64_t>() : nullptr,
          .slim = wide ? nullptr : ids.data<int32_t>(),
          .first_row = options.first_row,
          .rows = count32(rows)};
}

// A thread takes kWide neighbouring channels of one output row; per_row of them make a row.
template <class T, int kWide>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const T* __restrict__ table, LocalRow local, float scale, T* __restrict__ y,
                  uint32_t count, uint32_t per_row) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const uint32_t token = i / per_row, piece = i - token * per_row, row = local(token);
  Pack<T, kWide> values;
  if (row < local.rows) {
    values = load<kWide>(table + (int64_t{row} * per_row + piece) * kWide);
    if (scale != 1.f) {
#pragma unroll
      for (int j = 0; j < kWide; ++j) values[j] = T(float(values[j]) * scale);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kWide; ++j) values[j] = T(0.f);
  }
  store(y + int64_t{i} * kWide, values);
}

__global__ void __launch_bounds__(kThreads)
    sort_input_kernel(LocalRow local, uint32_t* __restrict__ keys, uint32_t* __restrict__ tokens,
                      int n) {
  const int i = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i >= n) return;
  keys[i] = local(i);
  tokens[i] = uint32_t(i);
}

// Block (i, c): sorted token i and a slice c of the channels. Only the first token of a row works:
// it adds up the whole run in order. `keep` adds to what the row holds.
template <class T, class Y, int kWide>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const uint32_t* __restrict__ keys, const uint32_t* __restrict__ tokens, int n,
                   const T* __restrict__ dy, float scale, Y* __restrict__ dtable, uint32_t rows,
                   int h, bool keep) {
  const int first = int(blockIdx.x), column = int(blockIdx.y * kThreads + threadIdx.x) * kWide;
  const uint32_t row = keys[first];
  if (row >= rows || (first > 0 && keys[first - 1] == row) || column >= h) return;
  // The last token of the run, by steps that double and then halve.
  int last = first, step = 1;
  for (; last + step < n && keys[last + step] == row; step *= 2) last += step;
  for (step /= 2; step > 0; step /= 2)
    if (last + step < n && keys[last + step] == row) last += step;

  float sums[kWide] = {};
#pragma unroll 4
  for (int i = first; i <= last; ++i) {
    const Pack<T, kWide> d = load<kWide>(dy + int64_t{tokens[i]} * h + column);
#pragma unroll
    for (int j = 0; j < kWide; ++j) sums[j] += float(d[j]);
  }
  Y* to = dtable + int64_t{row} * h + column;
  Pack<Y, kWide> out;
  if (keep) out = load<kWide>(to);
#pragma unroll
  for (int j = 0; j < kWide; ++j)
    out[j] = Y(keep ? float(out[j]) + sums[j] * scale : sums[j] * scale);
  store(to, out);
}

// f<kWide>()
template <class T, class F>
void for_width(bool vectors, F&& f) {
  if (vectors)
    f.template operator()<kVector<T>>();
  else
    f.template operator()<1>();
}

}  // namespace

void embedding(const Tensor& table, const Tensor& ids, const EmbeddingOptions& options, Tensor& y) {
  if (y.numel() == 0) return;
  const int64_t h = table.dim(1);
  for_gpu_dtype(table.dtype(), [&]<class T>() {
    for_width<T>(vectorizable(h, table, y), [&]<int kWide>() {
      const auto count = count32(y.numel() / kWide);
      gather_kernel<T, kWide><<<blocks_for(count, kThreads), kThreads, 0, stream_of(y)>>>(
          table.data<T>(), local_rows(ids, options, table.dim(0)), float(options.scale),
          y.data<T>(), count, uint32_t(h / kWide));
    });
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void embedding_backward(const Tensor& ids, const Tensor& dy, const EmbeddingOptions& options,
                        Tensor& workspace, const Sink& dtable) {
  const cudaStream_t stream = stream_of(dy);
  const int n = narrow<int>(ids.numel()), h = narrow<int>(dtable.tensor.dim(1));
  const int64_t rows = dtable.tensor.dim(0);
  Tensor out = dtable.tensor;
  if (dtable.beta == 0.f) set_zero(out);  // rows that no id names
  if (n == 0) return;

  // Sorted by row, stable: the order of a row's tokens, and so of the additions, is theirs.
  char* bytes = static_cast<char*>(workspace.raw());
  const int64_t array = round_up(int64_t{n} * 4, 256);
  uint32_t* arrays[4];
  for (int i = 0; i < 4; ++i) arrays[i] = reinterpret_cast<uint32_t*>(bytes + i * array);
  auto [keys, tokens, sorted_keys, sorted_tokens] = arrays;
  sort_input_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(
      local_rows(ids, options, rows), keys, tokens, n);
  PHX_CUDA_CHECK(cudaGetLastError());
  int bits = 1;  // keys are 0 .. rows
  while ((rows >> bits) != 0) ++bits;
  size_t needed = 0;
  PHX_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, needed, keys, sorted_keys, tokens,
                                                 sorted_tokens, n, 0, bits, stream));
  size_t available = size_t(embedding_sort_bytes(n));
  PHX_CHECK(needed <= available, "embedding: sorting ", n, " ids needs ", needed,
            " bytes on this GPU, but its workspace has ", available);
  PHX_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(bytes + 4 * array, available, keys, sorted_keys,
                                                 tokens, sorted_tokens, n, 0, bits, stream));

  for_gpu_dtype(dy.dtype(), [&]<class T>() {
    for_gpu_dtype(out.dtype(), [&]<class Y>() {
      for_width<T>(vectorizable(h, dy, out), [&]<int kWide>() {
        const dim3 grid(unsigned(n), blocks_for(ceil_div(h, kWide), kThreads));
        scatter_kernel<T, Y, kWide><<<grid, kThreads, 0, stream>>>(
            sorted_keys, sorted_tokens, n, dy.data<T>(), float(options.scale), out.data<Y>(),
            uint32_t(rows), h, dtable.beta != 0.f);
      });
    });
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
