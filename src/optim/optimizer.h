// AdamW over the store's flat buffers: gradient norm, clipping and update, all enqueued without a
// word from the host. Weights of 16 bits keep an f32 master: for bf16 only the 16 bits that the
// weight lacks.
#pragma once

#include <vector>

#include "core/step_scalars.h"
#include "nn/parameter_store.h"
#include "optim/optimizer_config.h"

namespace phx {

// A flat buffer beside the weights that belongs into a checkpoint: of the owned ranges.
struct OptimizerState {
  const char* name;  // "exp_avg"
  Tensor flat;
};

class Optimizer {
 public:
  // `owned`: what this rank updates and keeps state for, in order; the others' weights come from
  // their ranks. Empty: all.
  Optimizer(ParameterStore& store, const OptimizerConfig& config,
            std::vector<FlatRange> owned = {});

  // The sum of squares of the gradients in `ranges` into its slot.
  void sum_squares(StepScalars& scalars, std::span<const FlatRange> ranges);
  // One update from the store's gradients, with the numbers in `scalars`, whose sum of squares is
  // that of all gradients by now. If it is not finite nothing changes, on the device; the host
  // hears of it from the step's results. `sticky`: after such a step all later ones are skipped
  // too, until the host has reacted.
  void update(StepScalars& scalars, bool sticky);

  std::vector<OptimizerState> states() const;
  // Masters that follow from weights loaded without optimizer state: the weights themselves.
  void masters_from_weights();

 private:
  ParameterStore& store_;
  OptimizerConfig config_;
  std::vector<FlatRange> owned_;
  Tensor exp_avg_, exp_avg_sq_;  // of the owned ranges, end to end
  Tensor master_;  // f32 for f16, the u16 remainder for bf16, undefined for f32 and f64
};

}  // namespace phx
