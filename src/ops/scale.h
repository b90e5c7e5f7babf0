// A tensor times a number.
#pragma once

#include "phalanx/core/tensor.h"

namespace phx {

Tensor scale(const Tensor& x, double factor);  // [..] -> [..]

}  // namespace phx
