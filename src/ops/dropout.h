// Hidden dropout, and its fused form at the end of a layer. The mask is a function of global
// indices (kernels/dropout.h), so nothing is saved for the backward.
#pragma once

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/dropout.h"

namespace phx {

using kernels::RandomSite;

// [s, b, h] (or [t, h]) -> the same. p = 0 gives x itself.
Tensor dropout(const Tensor& x, double p, const RandomSite& site);

// x + dropout(y + bias): [s, b, h], [s, b, h], [h] or undefined -> [s, b, h]
Tensor bias_dropout_add(const Tensor& x, const Tensor& y, const Tensor& bias, double p,
                        const RandomSite& site);

}  // namespace phx
