#include "phalanx/parallel/tensor/tensor_parallel.h"

#include "phalanx/core/autograd.h"
#include "phalanx/core/compute_stream.h"

namespace phx {

namespace {

Shape with_rows(const Tensor& x, int64_t rows) {
  Shape shape = x.shape();
  shape.set(0, rows);
  return shape;
}

}  // namespace

Tensor gather_sequence(const Tensor& x, const TensorParallel& tp) {
  if (!tp.cuts_sequence()) return x.detach();
  Tensor full = empty(with_rows(x, x.dim(0) * tp.size()), x.dtype(), x.device());
  tp.group->all_gather(x, full, compute_stream(x));
  return full;
}

Tensor sum_over_ranks(Tensor y, const TensorParallel& tp) {
  if (tp.size() == 1) return y;
  if (!tp.cuts_sequence()) {
    tp.group->all_reduce(y, compute_stream(y));
    return y;
  }
  PHX_CHECK(y.dim(0) % tp.size() == 0, "sequence parallelism cuts ", y.dim(0), " positions over ",
            tp.size(), " ranks, which does not divide them");
  Tensor part = empty(with_rows(y, tp.part(y.dim(0))), y.dtype(), y.device());
  tp.group->reduce_scatter(y, part, compute_stream(y));
  return part;
}

Tensor enter_region(const Tensor& x, const TensorParallel& tp) {
  if (tp.size() == 1) return x;
  return with_backward(gather_sequence(x, tp), {x}, [tp](const Tensor& dy, GradOut& grad) {
    if (!grad.wants(0)) return;
    // Summed in a copy unless the gradient is ours alone: others may hold it.
    Tensor summand = dy;
    if (!tp.cuts_sequence()) {
      summand = empty_like(dy);
      copy(dy, summand);
    }
    grad.pass(0, sum_over_ranks(std::move(summand), tp));
  });
}

Tensor leave_region(const Tensor& y, const TensorParallel& tp) {
  if (tp.size() == 1) return y;
  return with_backward(sum_over_ranks(y.detach(), tp), {y}, [tp](const Tensor& dy, GradOut& grad) {
    if (grad.wants(0)) grad.pass(0, gather_sequence(dy, tp));
  });
}

}  // namespace phx
