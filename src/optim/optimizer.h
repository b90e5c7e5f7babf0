// An update rule over the store's flat buffers: gradient norm, clipping and update, all enqueued
// without a word from the host. Weights of 16 bits keep an f32 master: for bf16 only the 16 bits
// that the weight lacks. With --optimizer-cpu-offload a fraction of the states lies in host memory,
// and the CPU updates their parameters (optim/host_update.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "phalanx/core/step_scalars.h"
#include "phalanx/nn/parameter_store.h"
#include "phalanx/optim/host_update.h"
#include "phalanx/optim/optimizer_config.h"
#include "phalanx/optim/state_share.h"

namespace phx {

// A flat buffer beside the weights that belongs into a checkpoint.
struct OptimizerState {
  std::string name;  // "exp_avg"
  Tensor flat;
  std::vector<FlatRange> ranges;  // of the store, which it holds end to end
};

class Optimizer {
 public:
  // `owned`: what this rank updates and keeps state for, in order; the others' weights come from
  // their ranks. Empty: all. `seed`: of 16-bit states, which are rounded at random. The rule is the
  // one of `rules` that config.optimizer names.
  Optimizer(ParameterStore& store, const OptimizerConfig& config, std::vector<FlatRange> owned = {},
            uint64_t seed = 0, const std::vector<UpdateRule>& rules = standard_update_rules());

  // The sum of squares of the gradients in `ranges` into its slot.
  void sum_squares(StepScalars& scalars, std::span<const FlatRange> ranges);
  // One update from the store's gradients, with the numbers in `scalars`, whose sum of squares is
  // that of all gradients by now. If it is not finite nothing changes, on the device; the host
  // hears of it from the step's results. `sticky`: after such a step all later ones are skipped
  // too, until the host has reacted.
  void update(StepScalars& scalars, bool sticky);

  // By name; where a state lies in two memories, first the host's part, then the device's.
  std::vector<OptimizerState> states() const;
  // Masters that follow from weights loaded without optimizer state: the weights themselves.
  void masters_from_weights();

 private:
  void update_on_device(StepScalars& scalars);

  ParameterStore& store_;
  OptimizerConfig config_;
  UpdateRule rule_;
  uint64_t seed_;
  int64_t owned_elements_ = 0;
  std::optional<HostUpdate> on_host_;  // the first part of what is owned
  std::optional<StateShare> on_device_;
};

}  // namespace phx
