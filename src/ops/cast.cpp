#include "phalanx/ops/cast.h"

#include "phalanx/core/accumulate.h"
#include "phalanx/core/autograd.h"
#include "phalanx/kernels/elementwise.h"

namespace phx {

Tensor cast(const Tensor& x, DType dtype) {  // [..] -> [..]
  PHX_CHECK(is_float(x.dtype()) && is_float(dtype), "cast: from ", x.dtype(), " to ", dtype,
            " has no gradient; kernels::cast converts any dtype to any");
  if (dtype == x.dtype()) return x;
  Tensor y = empty(x.shape(), dtype, x.device());
  kernels::cast(x, y);
  return with_backward(y, {x},
                       [](const Tensor& dy, GradOut& grad) { add_to_sink(dy, grad.add(0)); });
}

}  // namespace phx
