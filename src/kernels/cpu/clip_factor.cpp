#include "phalanx/kernels/clip_factor.h"

namespace phx::kernels::cpu {

void clip_factor(Tensor& scalars, const ClipOptions& options) {
  update_clip_factor(scalars.data<double>(), options);
}

}  // namespace phx::kernels::cpu
