// Activation functions, plain and gated. Only the input is kept for the backward.
#pragma once

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/activation.h"

namespace phx {

using kernels::Activation;

Tensor activate(const Tensor& x, Activation kind);  // [.., f] -> [.., f]

// act(gate) * up: [.., 2f] = [gate | up] -> [.., f]
Tensor activate_gated(const Tensor& x, Activation kind);

inline Tensor swiglu(const Tensor& x) { return activate_gated(x, Activation::silu); }
inline Tensor geglu(const Tensor& x) { return activate_gated(x, Activation::gelu_tanh); }
inline Tensor quick_geglu(const Tensor& x) { return activate_gated(x, Activation::quick_gelu); }

}  // namespace phx
