// A tensor in another floating type; its gradient comes back in the first one.
#pragma once

#include "phalanx/core/tensor.h"

namespace phx {

Tensor cast(const Tensor& x, DType dtype);  // [..] -> [..]; x itself if it is of that dtype

}  // namespace phx
