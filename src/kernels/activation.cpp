#include "phalanx/kernels/activation.h"

namespace phx::kernels {

const char* name(Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::quick_gelu:
      return "quick_gelu";
    case Activation::silu:
      return "silu";
    case Activation::relu_squared:
      return "relu_squared";
  }
  return "?";
}

void activate(const Tensor& x, Activation kind, Tensor& y) {
  PHX_DISPATCH(x.device(), activate, x, kind, y);
}

void activate_backward(const Tensor& x, const Tensor& dy, Activation kind, const Sink& dx) {
  PHX_DISPATCH(x.device(), activate_backward, x, dy, kind, dx);
}

void activate_gated(const Tensor& x, Activation kind, Tensor& y) {
  PHX_DISPATCH(x.device(), activate_gated, x, kind, y);
}

void activate_gated_backward(const Tensor& x, const Tensor& dy, Activation kind, const Sink& dx) {
  PHX_DISPATCH(x.device(), activate_gated_backward, x, dy, kind, dx);
}

}  // namespace phx::kernels
