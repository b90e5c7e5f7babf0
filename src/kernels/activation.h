// Activation functions, plain and gated.
//   plain   y = act(x)            x, y [.., f]
//   gated   y = act(gate) * up    x [.., 2f] = [gate | up], y [.., f]
// Gated silu is SwiGLU, gated gelu_tanh GeGLU, gated quick_gelu quick-GeGLU. The backward
// recomputes from x alone; a bias is added by the linear layer before.
#pragma once

#include <ostream>

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

enum class Activation : uint8_t {
  gelu,          // x Phi(x), Phi the normal distribution function
  gelu_tanh,     // the tanh approximation of it
  quick_gelu,    // x sigmoid(1.702 x)
  silu,          // x sigmoid(x)
  relu_squared,  // max(x, 0)^2
};
const char* name(Activation kind);

// x, y [.., f]
PHX_KERNEL(void, activate, (const Tensor& x, Activation kind, Tensor& y))
// x, dy [.., f]; dx [.., f] sink
PHX_KERNEL(void, activate_backward,
           (const Tensor& x, const Tensor& dy, Activation kind, const Sink& dx))

// x [.., 2f]; y [.., f]
PHX_KERNEL(void, activate_gated, (const Tensor& x, Activation kind, Tensor& y))
// x [.., 2f]; dy [.., f]; dx [.., 2f] sink
PHX_KERNEL(void, activate_gated_backward,
           (const Tensor& x, const Tensor& dy, Activation kind, const Sink& dx))

}  // namespace phx::kernels
