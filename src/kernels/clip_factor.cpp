#include "phalanx/kernels/clip_factor.h"

namespace phx::kernels {

void clip_factor(Tensor& scalars, const ClipOptions& options) {
  PHX_CHECK(scalars.shape() == Shape({kNumSlots}) && scalars.dtype() == DType::f64,
            "clip_factor: the step's scalars should be [", kNumSlots, "] of f64, but they are ",
            scalars.shape(), " of ", scalars.dtype());
  PHX_DISPATCH(scalars.device(), clip_factor, scalars, options);
}

}  // namespace phx::kernels
