// The stream on which a tensor's rank computes.
#pragma once

#include "phalanx/core/runtime.h"
#include "phalanx/core/tensor.h"

namespace phx {

inline Stream compute_stream(const Tensor& x) { return x.runtime().stream(StreamName::compute); }

}  // namespace phx
