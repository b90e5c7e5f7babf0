// Tokens that an expert has no room for: the choices are sorted by expert.
#include "phalanx/kernels/cuda/router.cuh"
#include "phalanx/kernels/cuda/stable_sort.h"

namespace phx::kernels::cuda {

namespace {

// Sorted by expert and, by weight, with the largest first; choices without an expert at the end.
template <bool kByWeight, class Key>
__global__ void __launch_bounds__(kThreads)
    capacity_keys_kernel(const int* __restrict__ indices, const float* __restrict__ probs,
                         int experts, Key* __restrict__ keys, uint32_t* __restrict__ values,
                         int n) {
  const int i = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i >= n) return;
  const uint32_t expert = indices[i] >= 0 ? uint32_t(indices[i]) : uint32_t(experts);
  if constexpr (kByWeight)
    keys[i] = Key(expert) << 32 | Key(~order_key(probs[i]));
  else
    keys[i] = expert;
  values[i] = uint32_t(i);
}

// The i-th of an expert's choices in the order is kept if the one `capacity` places before it is
// another expert's.
template <int kShift, class Key>
__global__ void __launch_bounds__(kThreads)
    capacity_keep_kernel(const Key* __restrict__ keys, const uint32_t* __restrict__ values,
                         int64_t capacity, int experts, uint8_t* __restrict__ keep, int n) {
  const int i = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i >= n) return;
  const Key expert = keys[i] >> kShift;
  const bool kept = expert < Key(experts) && capacity > 0 &&
                    (i < capacity || keys[i - capacity] >> kShift != expert);
  keep[values[i]] = kept ? 1 : 0;
}

__global__ void __launch_bounds__(kThreads)
    drop_choices_kernel(const uint8_t* __restrict__ keep, int* __restrict__ indices,
                        float* __restrict__ probs, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n || keep[i] != 0) return;
  indices[i] = -1;
  probs[i] = 0.f;
}

}  // namespace

void keep_within_capacity(const Tensor& indices, const Tensor& probs, int64_t experts,
                          int64_t capacity, bool by_weight, Tensor& workspace, Tensor& keep) {
  const int n = narrow<int>(indices.numel()), e = narrow<int>(experts);
  if (n == 0) return;
  const cudaStream_t stream = stream_of(indices);
  const auto run = [&]<bool kByWeight, class Key>() {
    constexpr int kShift = kByWeight ? 32 : 0;
    const SortArrays<Key> a = sort_arrays<Key>(workspace, n);
    capacity_keys_kernel<kByWeight><<<blocks_for(n, kThreads), kThreads, 0, stream>>>(
        indices.data<int32_t>(), probs.data<float>(), e, a.keys, a.values, n);
    PHX_CUDA_CHECK(cudaGetLastError());
    sort_pairs(a, kShift + bits_of(experts), stream);
    capacity_keep_kernel<kShift><<<blocks_for(n, kThreads), kThreads, 0, stream>>>(
        a.sorted_keys, a.sorted_values, capacity, e, keep.data<uint8_t>(), n);
    PHX_CUDA_CHECK(cudaGetLastError());
  };
  if (by_weight)
    run.template operator()<true, uint64_t>();
  else
    run.template operator()<false, uint32_t>();
}

void drop_choices(const Tensor& keep, Tensor& indices, Tensor& probs) {
  const int64_t n = keep.numel();
  if (n == 0) return;
  drop_choices_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream_of(keep)>>>(
      keep.data<uint8_t>(), indices.data<int32_t>(), probs.data<float>(), n);
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
