#include "phalanx/core/cuda/check.h"
#include "phalanx/core/step_scalars.h"

namespace phx::cuda {

namespace {

// The values travel as a kernel's argument, which CUDA copies when it is launched: a copy from
// ordinary memory could make the host wait for the stream.
__global__ void write_kernel(double* slots, StepValues values) {
  if (threadIdx.x < kNumHostSlots)
    slots[threadIdx.x] = reinterpret_cast<const double*>(&values)[threadIdx.x];
}

__global__ void invert_kernel(double* slots) {
  const double inverse = 1.0 / fmax(slots[int(Slot::tokens)], 1.0);
  slots[int(Slot::inverse_tokens)] = inverse;
  slots[int(Slot::grad_scale)] = slots[int(Slot::loss_scale)] * inverse;
}

cudaStream_t stream_of(const Tensor& x) {
  return static_cast<cudaStream_t>(x.device().compute_stream());
}

}  // namespace

void write_step_values(const Tensor& tensor, const StepValues& values) {
  write_kernel<<<1, 32, 0, stream_of(tensor)>>>(tensor.data<double>(), values);
  PHX_CUDA_CHECK(cudaGetLastError());
}

void invert_tokens(const Tensor& tensor) {
  invert_kernel<<<1, 1, 0, stream_of(tensor)>>>(tensor.data<double>());
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::cuda
