#include "phalanx/kernels/head_norm.h"

#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels {

void head_norm(const Tensor& x, const Tensor& wq, const Tensor& wk, const PackedHeads& heads,
               const NormOptions& options, Tensor& y, Tensor& rstd) {
  PHX_DISPATCH(x.device(), head_norm, x, wq, wk, heads, options, y, rstd);
}

void head_norm_backward(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& rstd,
                        const Tensor& dy, const PackedHeads& heads, const NormOptions& options,
                        Tensor& workspace, Tensor& dx, const Sink& dwq, const Sink& dwk) {
  PHX_DISPATCH(x.device(), head_norm_backward, x, wq, wk, rstd, dy, heads, options, workspace, dx,
               dwq, dwk);
}

Shape head_norm_workspace(const Tensor& x, const PackedHeads& heads) {
  return {num_row_blocks(x.numel() / x.dim(-1), x.device().target()), 2 * heads.d};
}

}  // namespace phx::kernels
