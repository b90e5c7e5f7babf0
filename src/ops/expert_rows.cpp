#include "phalanx/ops/expert_rows.h"

#include "phalanx/core/autograd.h"

namespace phx {

namespace {

Shape with_rows(const Tensor& x, int64_t rows) {
  Shape shape = x.shape();
  shape.set(0, rows);
  return shape;
}

}  // namespace

ExpertOrder order_by_expert(const Tensor& indices, int64_t first, int64_t count, int64_t rows) {
  const Device device = indices.device();
  ExpertOrder order{.row_of = empty(indices.shape(), DType::i32, device),
                    .choice_of = empty({rows}, DType::i32, device),
                    .offsets = empty({count + 1}, DType::i32, device)};
  kernels::sort_by_expert(indices, first, order.row_of, order.choice_of, order.offsets);
  return order;
}

Tensor to_expert_rows(const Tensor& x, const ExpertOrder& order) {  // [t, ..] -> [r, ..]
  Tensor y = empty(with_rows(x, order.choice_of.numel()), x.dtype(), x.device());
  kernels::gather_rows(x, order.choice_of, order.row_of.dim(1), y);
  return with_backward(y, {x}, [row_of = order.row_of](const Tensor& dy, GradOut& grad) {
    kernels::sum_rows(dy, row_of, grad.add(0));  // dy: [r, ..]
  });
}

Tensor to_expert_weights(const Tensor& probs, const ExpertOrder& order) {  // [t, k] -> [r]
  const Tensor flat = probs.detach().reshape({probs.numel(), 1});
  Tensor y = empty({order.choice_of.numel(), 1}, probs.dtype(), probs.device());
  kernels::gather_rows(flat, order.choice_of, 1, y);
  return with_backward(
      y.reshape({y.numel()}), {probs}, [row_of = order.row_of](const Tensor& dy, GradOut& grad) {
        Sink sink = grad.add(0);  // [t, k]
        const int64_t choices = row_of.numel();
        kernels::sum_rows(dy.reshape({dy.numel(), 1}), row_of.reshape({choices, 1}),
                          {sink.tensor.reshape({choices, 1}), sink.beta});
      });
}

Tensor from_expert_rows(const Tensor& y, const ExpertOrder& order) {  // [r, ..] -> [t, ..]
  Tensor out = empty(with_rows(y, order.row_of.dim(0)), y.dtype(), y.device());
  kernels::sum_rows(y, order.row_of, {out});
  return with_backward(out, {y}, [order](const Tensor& dout, GradOut& grad) {
    kernels::gather_rows(dout, order.choice_of, order.row_of.dim(1), grad.out(0));
  });
}

Tensor reorder_rows(const Tensor& x, const Tensor& source, const Tensor& place) {
  Tensor y = empty(with_rows(x, source.numel()), x.dtype(), x.device());
  kernels::gather_rows(x, source, 1, y);
  return with_backward(y, {x}, [place](const Tensor& dy, GradOut& grad) {
    kernels::gather_rows(dy, place, 1, grad.out(0));
  });
}

Tensor grouped_linear(const Tensor& x, const Tensor& w, const Tensor& offsets,
                      const Remake& remake) {
  const int64_t e = offsets.numel() - 1;
  const Shape matrices{e, w.dim(0) / e, w.dim(1)};  // [e, out, in]
  Tensor y = empty({x.dim(0), matrices[1]}, x.dtype(), x.device());
  kernels::grouped_matmul(x, w.detach().reshape(matrices), offsets, /*transposed=*/false, {y});
  const Tensor kept = w.requires_grad() && !remake ? x.detach() : Tensor();
  return with_backward(
      y, {x, w},
      [kept, remake, w = w.detach().reshape(matrices), offsets](const Tensor& dy,
                                                                GradOut& grad) {  // [r, out]
        // Overwritten: rows behind the last one have no gradient to add to.
        if (grad.wants(0))
          kernels::grouped_matmul(dy, w, offsets, /*transposed=*/true, {grad.out(0)});
        grad.later(1, [kept, remake, dy, offsets, shape = w.shape()](const Sink& dw) {
          kernels::grouped_weight_product(dy, remake ? remake() : kept, offsets,
                                          {dw.tensor.reshape(shape), dw.beta});
        });
      });
}

Tensor scale_rows(const Tensor& x, const Tensor& factors) {  // [t, h], [t] -> [t, h]
  Tensor y = empty_like(x);
  kernels::scale_rows(x, factors, y);
  return with_backward(
      y, {x, factors},
      [x = x.detach(), factors = factors.detach()](const Tensor& dy, GradOut& grad) {
        kernels::scale_rows_backward(x, factors, dy, grad.out(0), grad.out(1));
      });
}

Tensor weighted_activation(const Tensor& x, const Tensor& probs, const Tensor& offsets,
                           const ExpertActivation& activation) {  // [r, 2f] or [r, f] -> [r, f]
  const int64_t f = activation.gated ? x.dim(-1) / 2 : x.dim(-1);
  Tensor y = empty({x.dim(0), f}, x.dtype(), x.device());
  kernels::activate_weighted(x, probs, offsets, activation, y);
  return with_backward(y, {x, probs},
                       [x = x.detach(), probs = probs.detach(), offsets, activation](
                           const Tensor& dy, GradOut& grad) {
                         kernels::activate_weighted_backward(x, probs, offsets, dy, activation,
                                                             grad.out(0), grad.out(1));
                       });
}

}  // namespace phx
