// Columns of a tensor as tensors of their own, and the way back.
#pragma once

#include <utility>

#include "phalanx/core/tensor.h"

namespace phx {

// x [.., a + b] -> [.., a], [.., b]
std::pair<Tensor, Tensor> split_columns(const Tensor& x, int64_t a);
// a [.., m], b [.., n] -> [.., m + n]
Tensor join_columns(const Tensor& a, const Tensor& b);

}  // namespace phx
