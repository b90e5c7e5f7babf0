#include "phalanx/ops/scale.h"

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/elementwise.h"

namespace phx {

Tensor scale(const Tensor& x, double factor) {  // [..] -> [..]
  Tensor y = empty_like(x);
  kernels::scale(x, factor, {y});
  return with_backward(y, {x}, [factor](const Tensor& dy, GradOut& grad) {
    kernels::scale(dy, factor, grad.add(0));
  });
}

}  // namespace phx
