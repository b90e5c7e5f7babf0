// RMSNorm of the q and k heads of a packed qkv tensor.
#pragma once

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/head_norm.h"

namespace phx {

using kernels::NormOptions;
using kernels::PackedHeads;

// qkv [.., (n + 2g) d] ordered q | k | v; wq, wk [d].
Tensor head_norm(const Tensor& qkv, const Tensor& wq, const Tensor& wk, const PackedHeads& heads,
                 const NormOptions& options = {});

}  // namespace phx
