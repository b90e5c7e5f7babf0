// What most launches need: the stream, a number of blocks, and whether vector accesses are allowed.
#pragma once

#include <cstdint>

#include "phalanx/base/math.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/core/tensor.h"

namespace phx::cuda {

inline cudaStream_t stream_of(const Tensor& x) {
  return static_cast<cudaStream_t>(x.device().compute_stream());
}

inline unsigned blocks_for(int64_t work, int64_t per_block) {
  return unsigned(narrow<int>(ceil_div(work, per_block)));  // a grid has up to 2^31 - 1
}

// A count of threads that kernels index in 32 bits, which the GPU divides several times faster.
inline uint32_t count32(int64_t work) { return uint32_t(narrow<int>(work)); }

// How many elements of T make a 16-byte access.
template <class T>
inline constexpr int kVector = 16 / int(sizeof(T));

// Whether these tensors can be read 16 bytes at a time from rows of `width` elements: views of a
// part of a tensor may begin anywhere. Undefined tensors do not matter.
template <class... Tensors>
bool vectorizable(int64_t width, const Tensors&... tensors) {
  auto fits = [width](const Tensor& x) {
    return !x.defined() ||
           (width * size_of(x.dtype()) % 16 == 0 && reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0);
  };
  return (fits(tensors) && ...);
}

}  // namespace phx::cuda
