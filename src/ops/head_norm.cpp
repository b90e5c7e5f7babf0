#include "phalanx/ops/head_norm.h"

#include "phalanx/core/autograd.h"

namespace phx {

Tensor head_norm(const Tensor& qkv, const Tensor& wq, const Tensor& wk, const PackedHeads& heads,
                 const NormOptions& options) {  // [.., (n + 2g) d], [d], [d]
  PHX_CHECK(qkv.dim(-1) == heads.total() * heads.d, "head_norm: qkv is ", qkv.shape(), ", but ",
            heads.n, " + 2 * ", heads.g, " heads of ", heads.d, " make ", heads.total() * heads.d);
  PHX_CHECK(wq.shape() == Shape({heads.d}) && wk.shape() == Shape({heads.d}),
            "head_norm: heads have ", heads.d, " channels, but the weights are ", wq.shape(),
            " and ", wk.shape());
  Tensor y = empty_like(qkv);
  Tensor rstd =
      empty(qkv.shape().with_last(heads.n + heads.g), acc_dtype(qkv.dtype()), qkv.device());
  kernels::head_norm(qkv, wq, wk, heads, options, y, rstd);

  return with_backward(y, {qkv, wq, wk},
                       [x = qkv.detach(), wq = wq.detach(), wk = wk.detach(), rstd, heads, options](
                           const Tensor& dy, GradOut& grad) {
                         Tensor workspace =
                             empty(kernels::head_norm_workspace(x, heads), acc_dtype(x.dtype()),
                                   x.device(), Purpose::workspace);
                         kernels::head_norm_backward(x, wq, wk, rstd, dy, heads, options, workspace,
                                                     grad.out(0), grad.add(1), grad.add(2));
                       });
}

}  // namespace phx
