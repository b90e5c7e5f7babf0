// The sum of two tensors: a residual connection.
#pragma once

#include "phalanx/core/tensor.h"

namespace phx {

Tensor add(const Tensor& a, const Tensor& b);  // [..], [..] -> [..]

}  // namespace phx
