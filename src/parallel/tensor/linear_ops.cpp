#include "phalanx/parallel/tensor/linear_ops.h"

#include <optional>

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/matmul.h"
#include "phalanx/kernels/sums.h"
#include "phalanx/ops/linear.h"
#include "phalanx/parallel/tensor/overlap.h"

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

// The input is gathered again while its gradient is computed, and that is summed while the
// weight's is.
void overlapped_backward(const Kept& kept, const Tensor& w, const Tensor& dy, const Shape& shape,
                         const TensorParallel& tp, GradOut& grad) {
  const Tensor x = kept.get();  // [s/tp or s, b, in]
  Tensor full = x;
  std::optional<Exchange> gather;
  if (tp.cuts_sequence()) {
    full = empty(shape, x.dtype(), x.device());
    gather.emplace(x);
    tp.group->all_gather(x, full, gather->stream());
    gather->begun();
  }
  const Tensor summand = empty(shape, dy.dtype(), dy.device());  // [s, b, in]
  kernels::matmul(dy, w, {}, {summand});
  if (gather) gather->wait();

  Tensor dx = tp.cuts_sequence() ? empty(x.shape(), dy.dtype(), dy.device()) : summand;
  Exchange sum(summand);
  if (tp.cuts_sequence()) {
    tp.group->reduce_scatter(summand, dx, sum.stream());
  } else {
    tp.group->all_reduce(dx, sum.stream());
  }
  sum.begun();
  kernels::matmul(dy, full, {.transpose_a = true}, grad.add(1));
  sum.wait();
  grad.pass(0, dx);
}

}  // namespace

Tensor column_linear(const Tensor& x, const Tensor& w, const Tensor& b, const TensorParallel& tp,
                     const Remake& remake) {
  if (tp.size() == 1 && !remake) return linear(x, w, b);
  PHX_CHECK(w.rank() == 2 && x.dim(-1) == w.dim(1), "column_linear: x is ", x.shape(),
            ", so w should be [out, ", x.dim(-1), "], but it is ", w.shape());
  Shape shape = x.shape();  // of the whole input: [s, b, in]
  if (tp.cuts_sequence()) shape.set(0, x.dim(0) * tp.size());
  const Tensor bias = b.defined() ? b.detach() : Tensor();
  Tensor y = empty(shape.with_last(w.dim(0)), x.dtype(), x.device());
  if (tp.overlaps(x) && tp.cuts_sequence()) {
    gather_and_multiply(x.detach(), w.detach(), bias, y, tp);
  } else {
    kernels::matmul(gather_sequence(x, tp), w, {.transpose_b = true, .bias = bias}, {y});
  }

  return with_backward(
      y, {x, w, b},
      [kept = keep(x, w, remake), shape, w = w.detach(), has_bias = b.defined(), tp](
          const Tensor& dy, GradOut& grad) {  // dy: [s, b, out/tp]
        if (grad.wants(0) && tp.overlaps(dy) && grad.wants(1) && grad.options().defer == nullptr) {
          overlapped_backward(kept, w, dy, shape, tp, grad);
        } else {
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
        }
        if (has_bias) grad.later(2, [dy](const Sink& db) { kernels::column_sums(dy, db); });
      });
}

Tensor row_linear(const Tensor& x, const Tensor& w, const TensorParallel& tp,
                  const Remake& remake) {
  if (tp.size() == 1 && !remake) return linear(x, w);
  PHX_CHECK(w.rank() == 2 && x.dim(-1) == w.dim(1), "row_linear: x is ", x.shape(),
            ", so w should be [out, ", x.dim(-1), "], but it is ", w.shape());
  Tensor y;  // [s/tp or s, b, out]
  if (tp.overlaps(x)) {
    y = multiply_and_sum(x.detach(), w.detach(), tp);
  } else {
    y = empty(x.shape().with_last(w.dim(0)), x.dtype(), x.device());
    kernels::matmul(x, w, {.transpose_b = true}, {y});
    y = sum_over_ranks(std::move(y), tp);
  }

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
