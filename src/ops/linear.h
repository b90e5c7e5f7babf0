// y = x w^T + b, with weights as Megatron and PyTorch store them.
#pragma once

#include "core/tensor.h"

namespace phx {

// x [.., in], w [out, in], b [out] or undefined -> [.., out]
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {});

}  // namespace phx
