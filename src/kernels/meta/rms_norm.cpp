#include "phalanx/kernels/rms_norm.h"

namespace phx::kernels::meta {

void rms_norm(const Tensor& x, const Tensor& w, const NormOptions&, Tensor& y, Tensor& rstd) {
  x.runtime().count(
      {.flops = 4 * x.numel(), .bytes = x.bytes() + w.bytes() + y.bytes() + rstd.bytes()});
}

void rms_norm_backward(const Tensor& x, const Tensor& w, const Tensor& rstd, const Tensor& dy,
                       const NormOptions&, Tensor& workspace, const Sink& dx, const Sink& dw) {
  x.runtime().count({.flops = 9 * x.numel(),
                     .bytes = x.bytes() + w.bytes() + rstd.bytes() + dy.bytes() +
                              (dx.beta != 0.f ? 2 : 1) * dx.tensor.bytes() + 2 * workspace.bytes() +
                              2 * dw.tensor.bytes()});
}

}  // namespace phx::kernels::meta
