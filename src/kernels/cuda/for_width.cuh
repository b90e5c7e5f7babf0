// Chooses a kernel by the type of its elements and by whether 16-byte accesses are allowed.
#pragma once

#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/launch.cuh"

namespace phx::cuda {

// f<T, kWide>() for the type and the vector width.
template <class F>
void for_width(DType dtype, bool vectors, F&& f) {
  for_gpu_dtype(dtype, [&]<class T>() {
    if (vectors)
      f.template operator()<T, kVector<T>>();
    else
      f.template operator()<T, 1>();
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::cuda
