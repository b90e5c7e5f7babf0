// A loss that takes others along.
#pragma once

#include <span>

#include "phalanx/core/tensor.h"

namespace phx {

// The value of `loss`. The backward starts every one of `others` with the gradient that arrives, so
// that they train the model and are not seen in its loss. [1], each [1] -> [1]
Tensor with_side_losses(const Tensor& loss, std::span<const Tensor> others);

}  // namespace phx
