#include "phalanx/kernels/activation.h"

namespace phx::kernels::meta {

// About ten operations for an activation, twelve more for its derivative; all of them are bound by
// memory anyway.

void activate(const Tensor& x, Activation, Tensor& y) {
  x.runtime().count({.flops = 10 * y.numel(), .bytes = x.bytes() + y.bytes()});
}

void activate_backward(const Tensor& x, const Tensor& dy, Activation, const Sink& dx) {
  x.runtime().count(
      {.flops = 22 * dy.numel(), .bytes = x.bytes() + dy.bytes() + dx.tensor.bytes()});
}

void activate_gated(const Tensor& x, Activation, Tensor& y) {
  x.runtime().count({.flops = 11 * y.numel(), .bytes = x.bytes() + y.bytes()});
}

void activate_gated_backward(const Tensor& x, const Tensor& dy, Activation, const Sink& dx) {
  x.runtime().count(
      {.flops = 25 * dy.numel(), .bytes = x.bytes() + dy.bytes() + dx.tensor.bytes()});
}

}  // namespace phx::kernels::meta
