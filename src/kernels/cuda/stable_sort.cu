#include <cub/device/device_radix_sort.cuh>

#include "phalanx/core/cuda/check.h"
#include "phalanx/kernels/cuda/stable_sort.h"

namespace phx::kernels::cuda {

namespace {

template <class Key>
void sort(const SortArrays<Key>& a, int bits, cudaStream_t stream) {
  size_t needed = 0, available = size_t(sort_scratch_bytes(a.n));
  PHX_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, needed, a.keys, a.sorted_keys, a.values,
                                                 a.sorted_values, a.n, 0, bits, stream));
  PHX_CHECK(needed <= available, "sorting ", a.n, " keys needs ", needed,
            " bytes on this GPU, but the workspace has ", available);
  PHX_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(a.scratch, available, a.keys, a.sorted_keys,
                                                 a.values, a.sorted_values, a.n, 0, bits, stream));
}

}  // namespace

void sort_pairs(const SortArrays<uint32_t>& arrays, int bits, cudaStream_t stream) {
  sort(arrays, bits, stream);
}

void sort_pairs(const SortArrays<uint64_t>& arrays, int bits, cudaStream_t stream) {
  sort(arrays, bits, stream);
}

}  // namespace phx::kernels::cuda
