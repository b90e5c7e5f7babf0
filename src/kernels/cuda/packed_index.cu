#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/cuda/packed_index.h"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

struct Strides {
  int64_t of[kMaxPackedTensors];
};

// A thread a sequence, and one more for the end.
__global__ void packed_index_kernel(const int32_t* cu_seqlens, Strides strides, PackedIndex index) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i > index.sequences) return;
  const int64_t begin = cu_seqlens[i];
  if (i < index.sequences) index.lengths[i] = int32_t(cu_seqlens[i + 1] - begin);
  for (int t = 0; t < kMaxPackedTensors; ++t)
    index.begins[t * (index.sequences + 1) + i] = begin * strides.of[t];
}

}  // namespace

PackedIndex write_packed_index(const Tensor& cu_seqlens,
                               const std::array<int64_t, kMaxPackedTensors>& strides, void* at) {
  PackedIndex index;
  index.sequences = cu_seqlens.dim(0) - 1;
  index.begins = static_cast<int64_t*>(at);
  index.lengths =
      reinterpret_cast<int32_t*>(index.begins + kMaxPackedTensors * (index.sequences + 1));
  Strides by_value;
  for (int t = 0; t < kMaxPackedTensors; ++t) by_value.of[t] = strides[size_t(t)];
  constexpr int kThreads = 256;
  packed_index_kernel<<<blocks_for(index.sequences + 1, kThreads), kThreads, 0,
                        stream_of(cu_seqlens)>>>(cu_seqlens.data<int32_t>(), by_value, index);
  PHX_CUDA_CHECK(cudaGetLastError());
  return index;
}

}  // namespace phx::kernels::cuda
