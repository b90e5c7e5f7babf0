// (x - mean) / sqrt(variance + eps) * w + bias over the last dimension.
#pragma once

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/layer_norm.h"

namespace phx {

using kernels::NormOptions;

// [.., h], [h], [h] or undefined -> [.., h]
Tensor layer_norm(const Tensor& x, const Tensor& w, const Tensor& bias,
                  const NormOptions& options = {});

}  // namespace phx
