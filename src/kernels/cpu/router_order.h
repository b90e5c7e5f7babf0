// What a router computes in, and in which order it takes experts.
#pragma once

#include <cmath>

#include "phalanx/core/tensor.h"

namespace phx::kernels::cpu {

// f<Acc>() for f32 and f64.
template <class F>
void for_acc(const Tensor& x, F&& f) {
  if (x.dtype() == DType::f64) return f.template operator()<double>();
  PHX_ASSERT(x.dtype() == DType::f32, "a router computes in f32 or f64, not in ", x.dtype());
  f.template operator()<float>();
}

// Larger ones first; NaN, which compares with nothing, behind all of them.
template <class Acc>
bool before(Acc a, Acc b) {
  return std::isnan(b) ? !std::isnan(a) : a > b;
}

}  // namespace phx::kernels::cpu
