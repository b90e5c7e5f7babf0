// What cuDNN wants to know of packed sequences: their lengths, and where each begins in every
// tensor, counted in elements.
#pragma once

#include <array>

#include "phalanx/core/tensor.h"

namespace phx::kernels::cuda {

inline constexpr int kMaxPackedTensors = 9;

struct PackedIndex {           // within a workspace
  int32_t* lengths = nullptr;  // [sequences]
  int64_t* begins = nullptr;   // [tensors, sequences + 1]
  int64_t sequences = 0;
  int64_t* begins_of(int tensor) const { return begins + tensor * (sequences + 1); }
};

// Writes the index to `at`; strides[i] is the distance of two tokens in tensor i.
PackedIndex write_packed_index(const Tensor& cu_seqlens,  // i32 [sequences + 1]
                               const std::array<int64_t, kMaxPackedTensors>& strides, void* at);

}  // namespace phx::kernels::cuda
