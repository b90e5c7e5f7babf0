#include "phalanx/kernels/wide_norm.h"

#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels {

void wide_norm_sums(const Tensor& x, const WideParts& parts, Tensor& sums) {
  PHX_DISPATCH(x.device(), wide_norm_sums, x, parts, sums);
}

void wide_norm(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& sums,
               const WideParts& parts, const NormOptions& options, Tensor& y) {
  PHX_DISPATCH(x.device(), wide_norm, x, wq, wk, sums, parts, options, y);
}

void wide_norm_dots(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& dy,
                    const WideParts& parts, const NormOptions& options, Tensor& dots) {
  PHX_DISPATCH(x.device(), wide_norm_dots, x, wq, wk, dy, parts, options, dots);
}

void wide_norm_backward(const Tensor& x, const Tensor& wq, const Tensor& wk,
                        const WideSums& over_ranks, const Tensor& dy, const WideParts& parts,
                        const NormOptions& options, Tensor& workspace, Tensor& dx, const Sink& dwq,
                        const Sink& dwk) {
  PHX_DISPATCH(x.device(), wide_norm_backward, x, wq, wk, over_ranks, dy, parts, options, workspace,
               dx, dwq, dwk);
}

Shape wide_norm_workspace(const Tensor& x, const WideParts& parts) {
  return {num_row_blocks(x.numel() / x.dim(-1), x.device().target()), parts.q + parts.k};
}

}  // namespace phx::kernels
