#include "phalanx/ops/rms_norm.h"

#include "phalanx/core/autograd.h"

namespace phx {

Tensor rms_norm(const Tensor& x, const Tensor& w,
                const NormOptions& options) {  // [.., h], [h] -> [.., h]
  PHX_CHECK(x.rank() >= 1 && w.shape() == Shape({x.dim(-1)}), "rms_norm: x is ", x.shape(),
            ", so w should be [", x.rank() ? x.dim(-1) : 0, "], but it is ", w.shape());
  Tensor y = empty_like(x);
  Tensor rstd = empty(x.shape().without_last(), acc_dtype(x.dtype()), x.device());  // [..]
  kernels::rms_norm(x, w, options, y, rstd);

  return with_backward(
      y, {x, w}, [x = x.detach(), w = w.detach(), rstd, options](const Tensor& dy, GradOut& grad) {
        kernels::rms_norm_backward(x, w, rstd, dy, options, grad.add(0),
                                   grad.add(1));  // dy: [.., h]
      });
}

}  // namespace phx
