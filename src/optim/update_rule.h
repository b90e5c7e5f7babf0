// What --optimizer NAME means: a rule that updates every element of a parameter from its gradient
// and the rule's states. The optimizer (optim/optimizer.h) owns the states, keeps masters, clips,
// and calls the rule for each piece of what this rank owns, on the device or on the host.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "phalanx/base/own_options.h"
#include "phalanx/core/step_scalars.h"
#include "phalanx/core/tensor.h"
#include "phalanx/optim/optimizer_config.h"

namespace phx {

struct RuleState {
  std::string name;  // in checkpoints: "optimizer.NAME.PARAMETER"
  DType dtype;       // the accumulation type of the weights, or bf16, which is rounded at random
};

// A piece of the parameters whose elements are treated alike; all tensors are [n].
struct UpdateCall {
  Tensor grad;
  Tensor scalars;  // f64 [kNumSlots]: learning rate, clip factor, .. (core/step_scalars.h)
  Tensor weight;   // is updated
  Tensor master;   // likewise; undefined where the weight is its own
  std::vector<Tensor> states;  // in the order of UpdateRule::states; zero before the first step
  const OptimizerConfig& config;
  bool decays = false;  // a matrix
  Slot lr = Slot::lr;   // which learning rate
  // Randomness: which stream of random bits, and the first element's place in it.
  uint64_t seed = 0;
  int64_t first = 0;
};

struct UpdateRule {
  std::string name, help;
  // `acc`: the accumulation type of the weights.
  std::function<std::vector<RuleState>(const OptimizerConfig& config, DType acc)> states;
  // Enqueues the update on the tensors' device. If the slot `skip` is set nothing may change.
  std::function<void(const UpdateCall& call, const OwnOptions& options)> update;
  OwnOptions options = {};
};

std::vector<UpdateRule> standard_update_rules();  // "adam" (AdamW), "sgd"

}  // namespace phx
