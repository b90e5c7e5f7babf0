// The numbers of one training step that live on the device, so that no kernel waits for the host:
// one f64 tensor, a slot a number. The first slots are written by the host when a step begins, the
// others by kernels during the step (kernels/clip_factor.h).
//
//   scalars.begin_step({.step = 7, .lr = 3e-4, ..});           // enqueued, no wait
//   ..forward, backward, sum_of_squares, clip_factor, adamw..  // read the slots on the device
//   scalars.publish();                                         // enqueued: a copy for the host
//   ..the next step is enqueued..
//   const StepResults last = scalars.collect();                // waits for the copy, not for that
#pragma once

#include <array>
#include <deque>

#include "phalanx/core/tensor.h"

namespace phx {

enum class Slot : uint8_t {
  // Written by begin_step.
  step,              // updates made, with this one: 1 in the first step
  lr,                // learning rate
  decoupled_lr,      // that of embedding and output layer, where it has its own schedule
  weight_decay,      // of the step; an optimizer call multiplies it by its parameters' factor
  bias_correction1,  // 1 - beta1^step
  bias_correction2,  // 1 - beta2^step
  loss_scale,        // what the loss was multiplied by (fp16); 1 otherwise
  tokens,            // N: tokens that count for the loss; a rank's own until they are all-reduced
  inverse_tokens,    // 1 / max(N, 1)
  grad_scale,        // loss_scale / max(N, 1): where the backward begins
  // These three are a rank's own until they are summed over all ranks, in one exchange.
  stop_votes,  // of ranks that want to stop
  // Written by kernels.
  loss_sum,     // of the global batch's token losses, unscaled
  sum_squares,  // of all gradients, still times loss_scale^2
  grad_norm,    // before clipping, without loss_scale
  clip_factor,  // what gradients are multiplied by: the clip coefficient / loss_scale
  nonfinite,    // 1 if this step's norm is inf or nan
  skip,         // 1 if the optimizer must leave everything as it is
};
inline constexpr int kNumSlots = 17;
inline constexpr int kNumHostSlots = 11;  // the leading ones, in the order of StepValues

struct StepValues {
  double step = 0;
  double lr = 0;
  double decoupled_lr = 0;
  double weight_decay = 0;
  double bias_correction1 = 1;
  double bias_correction2 = 1;
  double loss_scale = 1;
  double tokens = 0;
  double inverse_tokens = 0;
  double grad_scale = 0;
  double stop_votes = 0;
};
static_assert(sizeof(StepValues) == kNumHostSlots * sizeof(double));

// Fills in what follows from the step and the betas, and from the number of tokens.
StepValues step_values(int64_t step, double beta1, double beta2, double tokens);

struct StepResults {
  double step, lr, tokens, loss_scale, loss_sum, grad_norm;
  bool nonfinite, skipped;
  double stop_votes;  // of all ranks
};

class StepScalars {
 public:
  explicit StepScalars(Device device);

  // f64 [kNumSlots]
  Tensor& tensor() { return tensor_; }
  const Tensor& tensor() const { return tensor_; }
  // One slot as a view f64 [1], to sum into or to all-reduce.
  Tensor slot(Slot slot) const { return tensor_.rows(int(slot), 1); }

  // Writes the host's slots, behind everything enqueued so far. The host's memory is free at once.
  void begin_step(const StepValues& values);
  // inverse_tokens and grad_scale from tokens, after these were summed over the ranks.
  void invert_tokens();
  // stop_votes, loss_sum and sum_squares, f64 [3]: to be summed over all ranks.
  Tensor rank_sums() const { return tensor_.rows(int(Slot::stop_votes), 3); }
  // A stop that clip_factor made sticky is over (see kernels/clip_factor.h).
  void clear_skip();

  // Puts a copy of all slots aside. At most two copies wait for collect.
  void publish();
  int published() const { return int(published_.size()); }
  // The oldest copy; the host waits until the device has made it, but for nothing behind it.
  StepResults collect();
  // Drops the oldest copy.
  void forget() { published_.pop_front(); }

 private:
  struct Copy {
    int index;
    Fence made;
  };
  Tensor tensor_;
  std::array<Tensor, 2> copies_;
  std::deque<Copy> published_;
  int next_copy_ = 0;
};

// Inside of a kernel, or on a CPU tensor's data.
inline constexpr int index_of(Slot slot) { return int(slot); }

namespace cuda {
void write_step_values(const Tensor& tensor, const StepValues& values);
void invert_tokens(const Tensor& tensor);
}  // namespace cuda

}  // namespace phx
