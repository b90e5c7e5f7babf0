#include "phalanx/core/cuda/check.h"
#include "phalanx/kernels/clip_factor.h"

namespace phx::kernels::cuda {

namespace {

__global__ void clip_factor_kernel(double* slots, ClipOptions options) {  // one thread
  update_clip_factor(slots, options);
}

}  // namespace

void clip_factor(Tensor& scalars, const ClipOptions& options) {
  clip_factor_kernel<<<1, 1, 0, static_cast<cudaStream_t>(scalars.device().compute_stream())>>>(
      scalars.data<double>(), options);
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
