#include "phalanx/kernels/dropout.h"

namespace phx::kernels::meta {

void dropout(const Tensor& x, double, const RandomSite&, const Sink& y) {
  x.runtime().count({.flops = 2 * x.numel(), .bytes = x.bytes() + y.tensor.bytes()});
}

void bias_dropout_add(const Tensor& x, const Tensor& y, const Tensor& bias, double,
                      const RandomSite&, Tensor& out) {
  x.runtime().count(
      {.flops = 4 * x.numel(),
       .bytes = x.bytes() + y.bytes() + out.bytes() + (bias.defined() ? bias.bytes() : 0)});
}

void dropout_bias_backward(const Tensor& dout, double, const RandomSite&, Tensor& workspace,
                           const Sink& dbias) {
  dout.runtime().count({.flops = 2 * dout.numel(),
                        .bytes = dout.bytes() + 2 * workspace.bytes() + 2 * dbias.tensor.bytes()});
}

}  // namespace phx::kernels::meta
