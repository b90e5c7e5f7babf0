#include "phalanx/kernels/head_norm.h"

namespace phx::kernels::meta {

void head_norm(const Tensor& x, const Tensor& wq, const Tensor& wk, const PackedHeads&,
               const NormOptions&, Tensor& y, Tensor& rstd) {
  x.runtime().count({.flops = 4 * x.numel(),
                     .bytes = x.bytes() + wq.bytes() + wk.bytes() + y.bytes() + rstd.bytes()});
}

void head_norm_backward(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& rstd,
                        const Tensor& dy, const PackedHeads&, const NormOptions&, Tensor& workspace,
                        Tensor& dx, const Sink& dwq, const Sink& dwk) {
  x.runtime().count({.flops = 9 * x.numel(),
                     .bytes = x.bytes() + wq.bytes() + wk.bytes() + rstd.bytes() + dy.bytes() +
                              dx.bytes() + 2 * workspace.bytes() + 2 * dwq.tensor.bytes() +
                              2 * dwk.tensor.bytes()});
}

}  // namespace phx::kernels::meta
