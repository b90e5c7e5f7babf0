#include "phalanx/ops/linear.h"

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/matmul.h"
#include "phalanx/kernels/sums.h"

namespace phx {

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b) {  // [.., in] -> [.., out]
  PHX_CHECK(x.rank() >= 1 && w.rank() == 2 && x.dim(-1) == w.dim(1), "linear: x is ", x.shape(),
            ", so w should be [out, ", x.rank() ? x.dim(-1) : 0, "], but it is ", w.shape());
  PHX_CHECK(!b.defined() || b.shape() == Shape({w.dim(0)}), "linear: w is ", w.shape(),
            ", so b should be [", w.dim(0), "], but it is ", b.shape());
  Tensor y = empty(x.shape().with_last(w.dim(0)), x.dtype(), x.device());
  kernels::matmul(x, w, {.transpose_b = true, .bias = b.defined() ? b.detach() : Tensor()}, {y});

  // A frozen weight needs no x in its backward: nothing is kept for it.
  const Tensor saved = w.requires_grad() ? x.detach() : Tensor();
  return with_backward(
      y, {x, w, b},
      [x = saved, w = w.detach(), has_bias = b.defined()](const Tensor& dy, GradOut& grad) {
        if (grad.wants(0)) kernels::matmul(dy, w, {}, grad.add(0));  // [.., out] [out, in]
        grad.later(1, [x, dy](const Sink& dw) {                      // [out, ..] [.., in]
          kernels::matmul(dy, x, {.transpose_a = true}, dw);
        });
        if (has_bias) grad.later(2, [dy](const Sink& db) { kernels::column_sums(dy, db); });
      });
}

Tensor linear_onto(const Tensor& residual, const Tensor& x, const Tensor& w,
                   const Remake& remake) {  // [.., out], [.., in], [out, in] -> [.., out]
  PHX_CHECK(x.rank() >= 1 && w.rank() == 2 && x.dim(-1) == w.dim(1) &&
                residual.shape() == x.shape().with_last(w.dim(0)),
            "linear_onto: x is ", x.shape(), " and w ", w.shape(),
            ", so the residual should be [.., out], [.., in] times [out, in], but it is ",
            residual.shape());
  Tensor y = empty_like(residual);
  kernels::matmul(x, w, {.transpose_b = true, .add = residual.detach()}, {y});

  const Tensor saved = w.requires_grad() && !remake ? x.detach() : Tensor();
  return with_backward(y, {residual, x, w},
                       [x = saved, w = w.detach(), remake](const Tensor& dy, GradOut& grad) {
                         if (grad.wants(1)) kernels::matmul(dy, w, {}, grad.add(1));
                         grad.later(2, [x, remake, dy](const Sink& dw) {
                           kernels::matmul(dy, remake ? remake() : x, {.transpose_a = true}, dw);
                         });
                         grad.pass(0, dy);  // last: others add to it in place
                       });
}

}  // namespace phx
