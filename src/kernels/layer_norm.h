// y = (x - mean) / sqrt(variance + eps) * w + bias over the last dimension; the bias is optional.
// `zero_centred`: the weight is stored as w - 1 (Megatron's "1p").
#pragma once

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/dispatch.h"
#include "phalanx/kernels/rms_norm.h"

namespace phx::kernels {

// x, y [.., h]; w [h]; bias [h] or undefined; mean, rstd [..] in acc_dtype(x).
PHX_KERNEL(void, layer_norm,
           (const Tensor& x, const Tensor& w, const Tensor& bias, const NormOptions& options,
            Tensor& y, Tensor& mean, Tensor& rstd))

// What the forward left for the backward.
struct LayerNormSaved {
  Tensor x, w, mean, rstd;
};
// dx [.., h]; dw [h]; dbias [h], without a tensor if there is no bias.
struct LayerNormSinks {
  Sink dx, dw, dbias;
};

PHX_KERNEL(void, layer_norm_backward,
           (const LayerNormSaved& saved, const Tensor& dy, const NormOptions& options,
            Tensor& workspace, const LayerNormSinks& sinks))

// [2, blocks, h] in acc_dtype: each block of rows adds up its own dw and dbias; the blocks are then
// added in order.
Shape layer_norm_workspace(const Tensor& x);

// The common front: makes the workspace, then dispatches.
void layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy, const NormOptions& options,
                         const LayerNormSinks& sinks);

}  // namespace phx::kernels
