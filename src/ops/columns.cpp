#include "phalanx/ops/columns.h"

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/elementwise.h"

namespace phx {

std::pair<Tensor, Tensor> split_columns(const Tensor& x, int64_t a) {
  const int64_t b = x.dim(-1) - a;
  PHX_CHECK(a > 0 && b > 0, "split_columns: x is ", x.shape(), ", which has no columns on both ",
            "sides of column ", a);
  Tensor left = empty(x.shape().with_last(a), x.dtype(), x.device());
  Tensor right = empty(x.shape().with_last(b), x.dtype(), x.device());
  copy_columns(x, 0, left);
  copy_columns(x, a, right);
  const auto backward = [a, b](std::span<const Tensor> dys, GradOut& grad) {
    Tensor& dx = grad.out(0);  // [.., a + b]
    if (!dys[0].defined() || !dys[1].defined()) kernels::fill(dx, 0.0);
    if (dys[0].defined()) copy_columns(dys[0], 0, a, dx, 0);
    if (dys[1].defined()) copy_columns(dys[1], 0, b, dx, a);
  };
  const std::vector<Tensor> both = with_backward_many({left, right}, std::span(&x, 1), backward);
  return {both[0], both[1]};
}

Tensor join_columns(const Tensor& a, const Tensor& b) {
  const int64_t m = a.dim(-1), n = b.dim(-1);
  PHX_CHECK(a.shape().with_last(n) == b.shape() && a.dtype() == b.dtype(), "join_columns: a is ",
            a.shape(), " of ", a.dtype(), " and b ", b.shape(), " of ", b.dtype(),
            ", but they should have the same rows and type");
  Tensor y = empty(a.shape().with_last(m + n), a.dtype(), a.device());
  copy_columns(a, 0, m, y, 0);
  copy_columns(b, 0, n, y, m);
  return with_backward(y, {a, b}, [m](const Tensor& dy, GradOut& grad) {  // [.., m + n]
    if (grad.wants(0)) copy_columns(dy, 0, grad.out(0));
    if (grad.wants(1)) copy_columns(dy, m, grad.out(1));
  });
}

}  // namespace phx
