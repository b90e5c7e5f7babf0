#include "phalanx/ops/wide_norm.h"

#include "phalanx/core/autograd.h"

namespace phx {

namespace {

void add_over(Communicator* ranks, Tensor& sums) {
  if (ranks == nullptr || ranks->size() == 1) return;
  ranks->all_reduce(sums, sums.runtime().stream(StreamName::compute));
}

}  // namespace

Tensor wide_norm(const Tensor& qkv, const Tensor& wq, const Tensor& wk, const WideParts& parts,
                 const NormOptions& options, Communicator* ranks) {
  PHX_CHECK(qkv.dim(-1) >= parts.q + parts.k, "wide_norm: qkv is ", qkv.shape(), ", but q has ",
            parts.q, " channels and k ", parts.k);
  PHX_CHECK(wq.shape() == Shape({parts.q}) && wk.shape() == Shape({parts.k}), "wide_norm: q has ",
            parts.q, " channels and k ", parts.k, ", but the weights are ", wq.shape(), " and ",
            wk.shape());
  const int64_t rows = qkv.numel() / qkv.dim(-1);
  Tensor sums = empty({rows, 2}, acc_dtype(qkv.dtype()), qkv.device());
  kernels::wide_norm_sums(qkv, parts, sums);
  add_over(ranks, sums);
  Tensor y = empty_like(qkv);
  kernels::wide_norm(qkv, wq, wk, sums, parts, options, y);

  return with_backward(
      y, {qkv, wq, wk},
      [x = qkv.detach(), wq = wq.detach(), wk = wk.detach(), sums, parts, options, ranks](
          const Tensor& dy, GradOut& grad) {                             // dy: [.., width]
        Tensor dots = empty(sums.shape(), sums.dtype(), sums.device());  // [rows, 2]
        kernels::wide_norm_dots(x, wq, wk, dy, parts, options, dots);
        add_over(ranks, dots);
        Tensor workspace = empty(kernels::wide_norm_workspace(x, parts), acc_dtype(x.dtype()),
                                 x.device(), Purpose::workspace);
        kernels::wide_norm_backward(x, wq, wk, {.sums = sums, .dots = dots}, dy, parts, options,
                                    workspace, grad.out(0), grad.add(1), grad.add(2));
      });
}

}  // namespace phx
