// AdamW over flat buffers, one pass, with the step's numbers read on the device:
//   g = grad * clip_factor
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   p = p - lr ( (m / bias_correction1) / (sqrt(v / bias_correction2) + eps) + weight_decay p )
// If the slot `skip` is set, nothing is touched.
//
// A moment of bf16 is widened, updated in f32, and rounded at random: up with the probability of
// what is cut off, so that what is kept is right on average. To nearest it could not move: with
// beta2 = 0.999 a step changes v by a thousandth, and half a unit of bf16 is a 256th to a 512th, so
// a v that was once large would stay. The random bits are a pure function of (seed, step, element).
#pragma once

#include <cmath>

#include "phalanx/core/philox.h"
#include "phalanx/core/step_scalars.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double decay = 1.0;  // times the step's weight_decay; 0 for norms and biases
  Slot lr = Slot::lr;  // which learning rate
  // For rounding at random: the run's seed, and which element of the model the first one here is.
  uint64_t seed = 0;
  int64_t first = 0;
};

// What one call updates; all [n]. Three ways to keep the p of the formula:
//   weight f32 (f64), master undefined   the weight is its own master
//   weight bf16 or f16, master f32       the weight is the master, rounded to nearest even
//   weight bf16, master u16              the master is put together from both (master_split.h)
struct AdamWBuffers {
  Tensor weight, master;
  Tensor m, v;  // each f32 or bf16; f64 if the weight is
};

// grad [n]: f32, bf16 or f16; f64 if the weight is. scalars: StepScalars::tensor.
PHX_KERNEL(void, adamw,
           (const Tensor& grad, const Tensor& scalars, const AdamWOptions& options,
            const AdamWBuffers& buffers))

// The numbers of a call as the arithmetic wants them.
template <class Acc>
struct AdamWStep {
  Acc grad_scale, lr, weight_decay, inverse_correction1, inverse_correction2;
  Acc beta1, one_minus_beta1, beta2, one_minus_beta2, eps;

  PHX_HD AdamWStep(const double* slots, const AdamWOptions& options)
      : grad_scale(Acc(slots[int(Slot::clip_factor)])),
        lr(Acc(slots[int(options.lr)])),
        weight_decay(Acc(slots[int(Slot::weight_decay)] * options.decay)),
        inverse_correction1(Acc(1.0 / slots[int(Slot::bias_correction1)])),
        inverse_correction2(Acc(1.0 / slots[int(Slot::bias_correction2)])),
        beta1(Acc(options.beta1)),
        one_minus_beta1(Acc(1.0 - options.beta1)),
        beta2(Acc(options.beta2)),
        one_minus_beta2(Acc(1.0 - options.beta2)),
        eps(Acc(options.eps)) {}

  PHX_HD void update(Acc grad, Acc& p, Acc& m, Acc& v) const {
    const Acc g = grad * grad_scale;
    m = beta1 * m + one_minus_beta1 * g;
    v = beta2 * v + one_minus_beta2 * g * g;
    const Acc direction = m * inverse_correction1 / (std::sqrt(v * inverse_correction2) + eps);
    p -= lr * (direction + weight_decay * p);
  }
};

// Random bits of the elements of a call: four elements share a draw; of an element's 32 bits the
// lower half rounds m, the upper half v.
struct MomentBits {
  uint64_t key;
  int64_t first;

  PHX_HD MomentBits(const double* slots, const AdamWOptions& options)
      : key(philox_key(options.seed, kSite, uint64_t(slots[int(Slot::step)]))),
        first(options.first) {}
  // Of the elements whose index in the model is 4 group .. 4 group + 3.
  PHX_HD Philox4 group(int64_t group) const {
    return philox4x32(key, uint32_t(group), uint32_t(uint64_t(group) >> 32), 0, 0);
  }
  PHX_HD uint32_t at(int64_t i) const { return group((first + i) / 4).x[(first + i) % 4]; }

  static constexpr uint64_t kSite = site_of("optimizer.moments");
};
PHX_HD uint32_t bits_for_m(uint32_t random) { return random & 0xffffu; }
PHX_HD uint32_t bits_for_v(uint32_t random) { return random >> 16; }

// `random`: 16 bits, all equally likely.
PHX_HD bf16 round_at_random(float x, uint32_t random) {
  const uint32_t bits = phx::detail::float_bits(x);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;  // inf and nan stay
  const uint32_t quiet = (bits & 0x7fffffffu) > 0x7f800000u ? 0x40u : 0u;
  bf16 rounded;
  rounded.bits = uint16_t(((bits + (finite ? random : 0u)) >> 16) | quiet);
  return rounded;
}

}  // namespace phx::kernels
