#include "parallel/tensor/linear_ops.h"

#include "core/autograd.h"
#include "kernels/matmul.h"
#include "kernels/sums.h"
#include "ops/linear.h"

namespace phx {

namespace {

// What stands for the input until the backward: the tensor itself, or how to make it.
struct Kept {
  Tensor x;
  Remake remake;
  Tensor get() const { return remake ? remake() : x; }
};

Kept keep(const Tensor& x, const Tensor& w, const Remake& remake) {
  if (!w.requires_grad()) return {};  // a frozen weight needs no x in its backward
  if (remake) return {.x = {}, .remake = remake};
  return {.x = x.detach(), .remake = {}};
}

}  // namespace

Tensor column_linear(const Tensor& x, const Tensor& w, const Tensor& b, const TensorParallel& tp,
                     const Remake& remake) {
  if (tp.size() == 1 && !remake) return linear(x, w, b);
  PHX_CHECK(w.rank() == 2 && x.dim(-1) == w.dim(1), "column_linear: x is ", x.shape(),
            ", so w should be [out, ", x.dim(-1), "], but it is ", w.shape());
  const Tensor full = gather_sequence(x, tp);  // [s, b, in]
  Tensor y = empty(full.shape().with_last(w.dim(0)), x.dtype(), x.device());
  kernels::matmul(full, w, {.transpose_b = true, .bias = b.defined() ? b.detach() : Tensor()}, {y});

  return with_backward(
      y, {x, w, b},
      [kept = keep(x, w, remake), shape = full.shape(), w = w.detach(), has_bias = b.defined(), tp](
          const Tensor& dy, GradOut& grad) {  // dy: [s, b, out/tp]
        if (grad.wants(0)) {
          if (tp.size() == 1) {
            kernels::matmul(dy, w, {}, grad.add(0));
          } else {
            Tensor summand = empty(shape, dy.dtype(), dy.device());  // [s, b, in]
            kernels::matmul(dy, w, {}, {summand});
            grad.pass(0, sum_over_ranks(std::move(summand), tp));
          }
        }
        grad.later(1, [kept, dy, tp](const Sink& dw) {
          kernels::matmul(dy, gather_sequence(kept.get(), tp), {.transpose_a = true}, dw);
        });
        if (has_bias) grad.later(2, [dy](const Sink& db) { kernels::column_sums(dy, db); });
      });
}

Tensor row_linear(const Tensor& x, const Tensor& w, const TensorParallel& tp,
                  const Remake& remake) {
  if (tp.size() == 1 && !remake) return linear(x, w);
  PHX_CHECK(w.rank() == 2 && x.dim(-1) == w.dim(1), "row_linear: x is ", x.shape(),
            ", so w should be [out, ", x.dim(-1), "], but it is ", w.shape());
  Tensor summand = empty(x.shape().with_last(w.dim(0)), x.dtype(), x.device());  // [s, b, out]
  kernels::matmul(x, w, {.transpose_b = true}, {summand});
  const Tensor y = sum_over_ranks(std::move(summand), tp);  // [s/tp or s, b, out]

  return with_backward(
      y, {x, w}, [kept = keep(x, w, remake), w = w.detach(), tp](const Tensor& dy, GradOut& grad) {
        const Tensor full = gather_sequence(dy, tp);  // [s, b, out]
        if (grad.wants(0)) kernels::matmul(full, w, {}, grad.add(0));
        grad.later(1, [kept, full](const Sink& dw) {
          kernels::matmul(full, kept.get(), {.transpose_a = true}, dw);
        });
      });
}

}  // namespace phx
