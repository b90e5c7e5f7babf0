#include "phalanx/kernels/rms_norm.h"

#include <algorithm>

#include "phalanx/base/math.h"
#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels {

void rms_norm(const Tensor& x, const Tensor& w, const NormOptions& options, Tensor& y,
              Tensor& rstd) {
  PHX_DISPATCH(x.device(), rms_norm, x, w, options, y, rstd);
}

void rms_norm_backward(const Tensor& x, const Tensor& w, const Tensor& rstd, const Tensor& dy,
                       const NormOptions& options, Tensor& workspace, const Sink& dx,
                       const Sink& dw) {
  PHX_DISPATCH(x.device(), rms_norm_backward, x, w, rstd, dy, options, workspace, dx, dw);
}

Shape rms_norm_workspace(const Tensor& x) {
  const int64_t h = x.dim(-1);
  return {num_row_blocks(x.numel() / h, x.device().target()), h};
}

void rms_norm_backward(const Tensor& x, const Tensor& w, const Tensor& rstd, const Tensor& dy,
                       const NormOptions& options, const Sink& dx, const Sink& dw) {
  Tensor workspace =
      empty(rms_norm_workspace(x), acc_dtype(x.dtype()), x.device(), Purpose::workspace);
  rms_norm_backward(x, w, rstd, dy, options, workspace, dx, dw);
}

}  // namespace phx::kernels
