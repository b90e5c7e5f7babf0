#include "phalanx/kernels/layer_norm.h"

#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels {

void layer_norm(const Tensor& x, const Tensor& w, const Tensor& bias, const NormOptions& options,
                Tensor& y, Tensor& mean, Tensor& rstd) {
  PHX_DISPATCH(x.device(), layer_norm, x, w, bias, options, y, mean, rstd);
}

void layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy, const NormOptions& options,
                         Tensor& workspace, const LayerNormSinks& sinks) {
  PHX_DISPATCH(dy.device(), layer_norm_backward, saved, dy, options, workspace, sinks);
}

Shape layer_norm_workspace(const Tensor& x) {
  const int64_t h = x.dim(-1);
  return {2, num_row_blocks(x.numel() / h, x.device().target()), h};
}

void layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy, const NormOptions& options,
                         const LayerNormSinks& sinks) {
  Tensor workspace =
      empty(layer_norm_workspace(dy), acc_dtype(dy.dtype()), dy.device(), Purpose::workspace);
  layer_norm_backward(saved, dy, options, workspace, sinks);
}

}  // namespace phx::kernels
