// Gradient descent with momentum over flat buffers, one pass, as torch.optim.SGD does it:
//   g = grad * clip_factor + weight_decay p
//   b = momentum b + g
//   p = p - lr b
// Weight decay is part of the gradient here, unlike in AdamW. If the slot `skip` is set, nothing is
// touched.
#pragma once

#include "phalanx/core/step_scalars.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

struct SgdOptions {
  double momentum = 0.9;
  double decay = 1.0;  // times the step's weight_decay; 0 for norms and biases
  Slot lr = Slot::lr;  // which learning rate
};

struct SgdBuffers {       // all [n]
  Tensor weight, master;  // as in AdamWBuffers
  Tensor momentum;        // f32; f64 if the weight is
};

// grad [n]: f32, bf16 or f16; f64 if the weight is. scalars: StepScalars::tensor.
PHX_KERNEL(void, sgd,
           (const Tensor& grad, const Tensor& scalars, const SgdOptions& options,
            const SgdBuffers& buffers))

template <class Acc>
struct SgdStep {
  Acc grad_scale, lr, weight_decay, momentum;

  PHX_HD SgdStep(const double* slots, const SgdOptions& options)
      : grad_scale(Acc(slots[int(Slot::clip_factor)])),
        lr(Acc(slots[int(options.lr)])),
        weight_decay(Acc(slots[int(Slot::weight_decay)] * options.decay)),
        momentum(Acc(options.momentum)) {}

  PHX_HD void update(Acc grad, Acc& p, Acc& b) const {
    b = momentum * b + (grad * grad_scale + weight_decay * p);
    p -= lr * b;
  }
};

}  // namespace phx::kernels
