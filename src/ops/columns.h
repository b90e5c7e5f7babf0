// Columns of a tensor as tensors of their own.
#pragma once

#include <utility>

#include "phalanx/core/tensor.h"

namespace phx {

// x [.., a + b] -> [.., a], [.., b]
std::pair<Tensor, Tensor> split_columns(const Tensor& x, int64_t a);

}  // namespace phx
