// The first two dimensions exchanged: a matrix, or [b, s, h] <-> [s, b, h].
#pragma once

#include "phalanx/core/tensor.h"

namespace phx {

Tensor transpose(const Tensor& x);  // [a, b, ..] -> [b, a, ..]

}  // namespace phx
