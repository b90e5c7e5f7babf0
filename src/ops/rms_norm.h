// x / sqrt(mean(x^2) + eps) * w over the last dimension.
#pragma once

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/rms_norm.h"

namespace phx {

using kernels::NormOptions;

Tensor rms_norm(const Tensor& x, const Tensor& w,
                const NormOptions& options = {});  // [.., h], [h] -> [.., h]

}  // namespace phx
