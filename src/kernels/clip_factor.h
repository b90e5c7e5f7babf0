// From the sum of squares of all gradients: their norm, what to multiply them by, and whether to
// leave the step out. All of it on the device, in the slots of core/step_scalars.h.
#pragma once

#include <cmath>

#include "phalanx/core/step_scalars.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

struct ClipOptions {
  double max_norm = 1.0;    // 0: no clipping
  double skip_above = 0.0;  // a norm beyond this skips the step; 0: none does
  // Once skipped, skip every later step until StepScalars::clear_skip: the host hears of it a step
  // late. Without it (fp16 with a dynamic loss scale) only the step at fault is skipped.
  bool sticky = true;
};

// Reads sum_squares, loss_sum and loss_scale, writes grad_norm, clip_factor, nonfinite and skip.
PHX_KERNEL(void, clip_factor, (Tensor & scalars, const ClipOptions& options))  // f64 [kNumSlots]

PHX_HD void update_clip_factor(double* slots, const ClipOptions& options) {
  const double loss_scale = slots[int(Slot::loss_scale)];
  const double norm = std::sqrt(slots[int(Slot::sum_squares)]) / loss_scale;
  // Also true of a nan. A loss that is not finite skips the step even where the gradients are.
  constexpr double kLargest = 1.7976931348623157e308;
  const bool nonfinite = !(norm < kLargest) || !(std::fabs(slots[int(Slot::loss_sum)]) < kLargest);
  double coefficient = 1.0;
  // 1e-6 keeps a norm of 0 harmless; Megatron and PyTorch add the same.
  if (options.max_norm > 0) coefficient = options.max_norm / (norm + 1e-6);
  if (!(coefficient < 1.0)) coefficient = 1.0;
  slots[int(Slot::grad_norm)] = norm;
  slots[int(Slot::clip_factor)] = coefficient / loss_scale;
  slots[int(Slot::nonfinite)] = nonfinite;
  slots[int(Slot::skip)] = (options.sticky && slots[int(Slot::skip)] != 0) || nonfinite ||
                           (options.skip_above > 0 && norm > options.skip_above);
}

}  // namespace phx::kernels
