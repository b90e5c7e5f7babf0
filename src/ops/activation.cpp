#include "phalanx/ops/activation.h"

#include "phalanx/core/autograd.h"

namespace phx {

Tensor activate(const Tensor& x, Activation kind) {  // [.., f] -> [.., f]
  Tensor y = empty_like(x);
  kernels::activate(x, kind, y);
  return with_backward(y, {x}, [x = x.detach(), kind](const Tensor& dy, GradOut& grad) {
    kernels::activate_backward(x, dy, kind, grad.add(0));  // dy: [.., f]
  });
}

Tensor activate_gated(const Tensor& x, Activation kind) {  // [.., 2f] -> [.., f]
  PHX_CHECK(x.rank() >= 1 && x.dim(-1) % 2 == 0, "gated ", name(kind), ": x is ", x.shape(),
            ", but its last dimension should be even: [.., gate | up]");
  Tensor y = empty(x.shape().with_last(x.dim(-1) / 2), x.dtype(), x.device());
  kernels::activate_gated(x, kind, y);
  return with_backward(y, {x}, [x = x.detach(), kind](const Tensor& dy, GradOut& grad) {
    kernels::activate_gated_backward(x, dy, kind, grad.add(0));  // dy: [.., f]
  });
}

}  // namespace phx
