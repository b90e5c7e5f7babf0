// Small kernels over whole tensors: conversion, transposition, addition, scaling, filling. y is
// overwritten; it may be x itself where shape and dtype are equal, but for the transposition.
#pragma once

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

// y = x in y's dtype, any to any. Floats are rounded to nearest even (f8 saturates, see
// core/small_float.h), integers made of floats are cut towards zero. f64 to 16 or 8 bits goes
// through f32.
PHX_KERNEL(void, cast, (const Tensor& x, Tensor& y))

// x [a, b, ..] -> y [b, a, ..], any dtype. A matrix, or [b, s, h] to [s, b, h].
PHX_KERNEL(void, transpose, (const Tensor& x, Tensor& y))

// y = a + b; one shape and dtype.
PHX_KERNEL(void, add, (const Tensor& a, const Tensor& b, Tensor& y))

// y = beta y + factor x; one shape, two floating dtypes.
PHX_KERNEL(void, scale, (const Tensor& x, double factor, const Sink& y))

// Every element of y is `value`, rounded to y's dtype.
PHX_KERNEL(void, fill, (Tensor & y, double value))

// A value of one element type as another, on every device.
template <class To, class From>
PHX_HD To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_arithmetic_v<To> && std::is_arithmetic_v<From>) {
    return To(value);
  } else {
    return To(float(value));  // into or out of a small float
  }
}

}  // namespace phx::kernels
