// y = x / sqrt(mean(x^2) + eps) * w over the last dimension. `zero_centred`: the weight is stored
// as w - 1 (Megatron's "1p", Gemma).
#pragma once

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

struct NormOptions {
  double eps = 1e-5;
  bool zero_centred = false;
};

// x, y [.., h]; w [h]; rstd [..] in acc_dtype(x).
PHX_KERNEL(void, rms_norm,
           (const Tensor& x, const Tensor& w, const NormOptions& options, Tensor& y, Tensor& rstd))

// dx [.., h] sink; dw [h] sink. `workspace` as rms_norm_workspace says.
PHX_KERNEL(void, rms_norm_backward,
           (const Tensor& x, const Tensor& w, const Tensor& rstd, const Tensor& dy,
            const NormOptions& options, Tensor& workspace, const Sink& dx, const Sink& dw))

// [blocks, h] in acc_dtype: each block of rows adds up its own dw; the blocks are then added in
// order.
Shape rms_norm_workspace(const Tensor& x);

// The common front: makes the workspace, then dispatches.
void rms_norm_backward(const Tensor& x, const Tensor& w, const Tensor& rstd, const Tensor& dy,
                       const NormOptions& options, const Sink& dx, const Sink& dw);

}  // namespace phx::kernels
