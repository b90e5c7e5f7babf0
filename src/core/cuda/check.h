// Every CUDA call is checked: the error names the call and what CUDA said.
#pragma once

#include <cuda_runtime.h>

#include "phalanx/base/error.h"

#define PHX_CUDA_CHECK(call)                                                             \
  do {                                                                                   \
    const cudaError_t phx_status = (call);                                               \
    if (phx_status != cudaSuccess) [[unlikely]]                                          \
      ::phx::throw_error(::phx::str_cat("CUDA: ", #call,                                 \
                                        " failed: ", cudaGetErrorName(phx_status), ": ", \
                                        cudaGetErrorString(phx_status)));                \
  } while (0)
