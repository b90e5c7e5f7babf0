// The types that CUDA kernels compute with. f64 is for proofs, and those run on the CPU.
#pragma once

#include "phalanx/core/dtype.h"

namespace phx {

template <class F>
void for_gpu_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      f.template operator()<float>();
      return;
    case DType::bf16:
      f.template operator()<bf16>();
      return;
    case DType::f16:
      f.template operator()<f16>();
      return;
    default:
      throw_error(str_cat("CUDA kernels compute in f32, bf16 and f16, not ", name(dtype)));
  }
}

}  // namespace phx
