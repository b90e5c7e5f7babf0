// RMSNorm of q over all of its heads together, and of k likewise, in a packed qkv tensor (OLMoE).
#pragma once

#include "phalanx/comm/communicator.h"
#include "phalanx/core/tensor.h"
#include "phalanx/kernels/wide_norm.h"

namespace phx {

using kernels::NormOptions;
using kernels::WideParts;

// qkv [.., q + k + rest]; wq [q], wk [k]. `ranks` have the other channels (null: there are none):
// the sums over a row go over all of them, forward and backward.
Tensor wide_norm(const Tensor& qkv, const Tensor& wq, const Tensor& wk, const WideParts& parts,
                 const NormOptions& options = {}, Communicator* ranks = nullptr);

}  // namespace phx
