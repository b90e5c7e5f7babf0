// y = x w^T + b, with weights as Megatron and PyTorch store them.
#pragma once

#include <functional>

#include "phalanx/core/tensor.h"

namespace phx {

// x [.., in], w [out, in], b [out] or undefined -> [.., out]
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {});

// Makes an op's input again in the backward, so that it need not be kept: a norm from what it
// normalised, an activation from what it was applied to. Gives the very same bytes.
using Remake = std::function<Tensor()>;

// residual + x w^T in one product, rounded once: residual [.., out], x [.., in], w [out, in] ->
// [.., out]
Tensor linear_onto(const Tensor& residual, const Tensor& x, const Tensor& w,
                   const Remake& remake = {});

}  // namespace phx
