#include "phalanx/kernels/wide_norm.h"

namespace phx::kernels::meta {

void wide_norm_sums(const Tensor& x, const WideParts&, Tensor& sums) {
  x.runtime().count({.flops = 2 * x.numel(), .bytes = x.bytes() + sums.bytes()});
}

void wide_norm(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& sums,
               const WideParts&, const NormOptions&, Tensor& y) {
  x.runtime().count({.flops = 2 * x.numel(),
                     .bytes = x.bytes() + wq.bytes() + wk.bytes() + sums.bytes() + y.bytes()});
}

void wide_norm_dots(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& dy,
                    const WideParts&, const NormOptions&, Tensor& dots) {
  x.runtime().count({.flops = 3 * x.numel(),
                     .bytes = x.bytes() + wq.bytes() + wk.bytes() + dy.bytes() + dots.bytes()});
}

void wide_norm_backward(const Tensor& x, const Tensor& wq, const Tensor& wk,
                        const WideSums& over_ranks, const Tensor& dy, const WideParts&,
                        const NormOptions&, Tensor& workspace, Tensor& dx, const Sink& dwq,
                        const Sink& dwk) {
  x.runtime().count({.flops = 6 * x.numel(),
                     .bytes = x.bytes() + wq.bytes() + wk.bytes() + 2 * over_ranks.sums.bytes() +
                              dy.bytes() + dx.bytes() + 2 * workspace.bytes() +
                              2 * dwq.tensor.bytes() + 2 * dwk.tensor.bytes()});
}

}  // namespace phx::kernels::meta
