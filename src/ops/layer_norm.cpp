#include "phalanx/ops/layer_norm.h"

#include "phalanx/core/autograd.h"

namespace phx {

Tensor layer_norm(const Tensor& x, const Tensor& w, const Tensor& bias,
                  const NormOptions& options) {  // [.., h], [h], [h] -> [.., h]
  PHX_CHECK(x.rank() >= 1 && w.shape() == Shape({x.dim(-1)}), "layer_norm: x is ", x.shape(),
            ", so w should be [", x.rank() ? x.dim(-1) : 0, "], but it is ", w.shape());
  PHX_CHECK(!bias.defined() || bias.shape() == w.shape(), "layer_norm: w is ", w.shape(),
            ", so the bias should be too, but it is ", bias.shape());
  Tensor y = empty_like(x);
  Tensor mean = empty(x.shape().without_last(), acc_dtype(x.dtype()), x.device());  // [..]
  Tensor rstd = empty(x.shape().without_last(), acc_dtype(x.dtype()), x.device());  // [..]
  kernels::layer_norm(x, w, bias, options, y, mean, rstd);

  const kernels::LayerNormSaved saved{x.detach(), w.detach(), mean, rstd};
  return with_backward(
      y, {x, w, bias},
      [saved, options, biased = bias.defined()](const Tensor& dy, GradOut& grad) {  // dy: [.., h]
        kernels::layer_norm_backward(saved, dy, options,
                                     {grad.add(0), grad.add(1), biased ? grad.add(2) : Sink{}});
      });
}

}  // namespace phx
