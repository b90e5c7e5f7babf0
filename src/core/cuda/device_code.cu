#include <cuda_runtime.h>

#include "phalanx/core/cuda/device_code.h"

namespace phx::cuda {

namespace {
__global__ void nothing() {}
}  // namespace

const char* compiled_archs() { return PHX_CUDA_ARCHS_TEXT; }

bool has_code_for_current_gpu() {
  cudaFuncAttributes attributes;
  const bool found = cudaFuncGetAttributes(&attributes, nothing) == cudaSuccess;
  (void)cudaGetLastError();
  return found;
}

}  // namespace phx::cuda
