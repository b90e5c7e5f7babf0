#include "phalanx/ops/transpose.h"

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/elementwise.h"

namespace phx {

Tensor transpose(const Tensor& x) {  // [a, b, ..] -> [b, a, ..]
  PHX_CHECK(x.rank() >= 2, "transpose: x is ", x.shape(), ", but it needs two dimensions");
  Shape shape = x.shape();
  shape.set(0, x.dim(1));
  shape.set(1, x.dim(0));
  Tensor y = empty(shape, x.dtype(), x.device());
  kernels::transpose(x, y);
  return with_backward(y, {x}, [](const Tensor& dy, GradOut& grad) {
    kernels::transpose(dy, grad.out(0));  // [b, a, ..] -> [a, b, ..]
  });
}

}  // namespace phx
