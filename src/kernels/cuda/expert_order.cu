// The order of rows by their experts: a stable sort of the choices, and where the rows that come
// from several ranks go.
#include <algorithm>

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

}  // namespace phx::kernels::cuda
