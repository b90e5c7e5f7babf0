// The formulas of the activations and their derivatives, written once for the CPU and the GPU.
// `Math` brings sigmoid, erf and exp of its device.
#pragma once

#include "phalanx/core/host_device.h"
#include "phalanx/kernels/activation.h"

namespace phx::kernels {

template <class Acc>
struct ValueAndSlope {
  Acc value, slope;
};

// act(x) and act'(x). Where only one of them is used, the compiler drops the other.
template <Activation kKind, class Math, class Acc>
PHX_HD ValueAndSlope<Acc> activation_at(Acc x) {
  if constexpr (kKind == Activation::gelu) {
    const Acc phi = Acc(0.5) + Acc(0.5) * Math::erf(x * Acc(0.7071067811865475));
    const Acc density = Acc(0.3989422804014327) * Math::exp(Acc(-0.5) * x * x);
    return {x * phi, phi + x * density};
  } else if constexpr (kKind == Activation::gelu_tanh) {
    // (1 + tanh z) / 2 = sigmoid(2 z), which keeps its precision where 1 + tanh cancels.
    constexpr Acc kTwice = Acc(1.5957691216057308), kCube = Acc(0.044715);  // 2 sqrt(2 / pi)
    const Acc s = Math::sigmoid(kTwice * x * (Acc(1) + kCube * x * x));
    const Acc inner = kTwice * (Acc(1) + Acc(3) * kCube * x * x);
    return {x * s, s + x * s * (Acc(1) - s) * inner};
  } else if constexpr (kKind == Activation::relu_squared) {
    const Acc r = x > Acc(0) ? x : Acc(0);
    return {r * r, r + r};
  } else {
    constexpr Acc kSteep = kKind == Activation::quick_gelu ? Acc(1.702) : Acc(1);
    const Acc s = Math::sigmoid(kSteep * x);
    return {x * s, s * (Acc(1) + kSteep * x * (Acc(1) - s))};
  }
}

// Calls f.template operator()<kind>().
template <class F>
void for_activation(Activation kind, F&& f) {
  switch (kind) {
    case Activation::gelu:
      return f.template operator()<Activation::gelu>();
    case Activation::gelu_tanh:
      return f.template operator()<Activation::gelu_tanh>();
    case Activation::quick_gelu:
      return f.template operator()<Activation::quick_gelu>();
    case Activation::silu:
      return f.template operator()<Activation::silu>();
    case Activation::relu_squared:
      return f.template operator()<Activation::relu_squared>();
  }
}

}  // namespace phx::kernels
