#include "phalanx/kernels/layer_norm.h"

namespace phx::kernels::meta {

void layer_norm(const Tensor& x, const Tensor& w, const Tensor& bias, const NormOptions&, Tensor& y,
                Tensor& mean, Tensor& rstd) {
  x.runtime().count({.flops = 7 * x.numel(),
                     .bytes = x.bytes() + w.bytes() + (bias.defined() ? bias.bytes() : 0) +
                              y.bytes() + mean.bytes() + rstd.bytes()});
}

void layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy, const NormOptions&,
                         Tensor& workspace, const LayerNormSinks& sinks) {
  const int64_t dbias = sinks.dbias.tensor.defined() ? sinks.dbias.tensor.bytes() : 0;
  dy.runtime().count({.flops = 13 * dy.numel(),
                      .bytes = saved.x.bytes() + saved.w.bytes() + saved.mean.bytes() +
                               saved.rstd.bytes() + dy.bytes() + sinks.dx.tensor.bytes() +
                               2 * workspace.bytes() + 2 * sinks.dw.tensor.bytes() + 2 * dbias});
}

}  // namespace phx::kernels::meta
