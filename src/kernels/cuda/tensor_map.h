// Descriptions of tensors in device memory for Hopper's copy engine.
#pragma once

#include <cuda.h>

#include <initializer_list>

#include "phalanx/core/tensor.h"

namespace phx::cuda {

// 16-bit numbers at `data` as a row-major tensor of the given dimensions, the innermost first;
// copies take `box` of it into rows of 128 swizzled bytes. Outside of the tensor there are zeros.
// The innermost dimension and the address are multiples of 16 bytes.
CUtensorMap tensor_map(const void* data, DType dtype, std::initializer_list<int64_t> dims,
                       std::initializer_list<int> box);

}  // namespace phx::cuda
