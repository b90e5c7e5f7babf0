#include "phalanx/optim/optimizer.h"

#include "phalanx/base/named_entry.h"
#include "phalanx/kernels/clip_factor.h"
#include "phalanx/kernels/elementwise.h"
#include "phalanx/kernels/sums.h"

namespace phx {

Optimizer::Optimizer(ParameterStore& store, const OptimizerConfig& config,
                     std::vector<FlatRange> owned, uint64_t seed,
                     const std::vector<UpdateRule>& rules)
    : store_(store),
      config_(config),
      rule_(entry_of(rules, config.optimizer, "--optimizer")),
      seed_(seed) {
  if (owned.empty()) owned = {store.all()};
  for (const FlatRange& range : owned) owned_elements_ += range.count;
  SplitRanges parts =
      split(store, owned, config.optimizer_cpu_offload ? config.optimizer_offload_fraction : 0.0);
  if (!parts.first.empty()) on_host_.emplace(store, config, rule_, std::move(parts.first), seed);
  // A stage without parameters has states, too, though empty ones: a checkpoint is for all ranks.
  if (parts.rest.empty() && on_host_) return;
  on_device_.emplace(std::move(parts.rest), store, config, rule_, store.weights().device());
  for (Tensor& state : on_device_->states) set_zero(state);
  masters_from_weights();
}

void Optimizer::masters_from_weights() {
  if (on_host_) on_host_->masters_from_weights();
  if (!on_device_ || !on_device_->master.defined()) return;
  if (on_device_->master.dtype() == DType::u16) {
    set_zero(on_device_->master);  // the master is the weight, nothing remains
    return;
  }
  for (const SharePiece& piece : on_device_->pieces) {
    Tensor master = part(on_device_->master, piece.of_states);
    kernels::cast(store_.weights(piece.of_store), master);
  }
}

void Optimizer::sum_squares(StepScalars& scalars, std::span<const FlatRange> ranges) {
  Tensor slot = scalars.slot(Slot::sum_squares);
  if (ranges.empty()) set_zero(slot);
  // As large on every rank, whatever it counts: ranks of one stage allocate alike.
  const Tensor workspace = kernels::sum_workspace(owned_elements_, slot.device());
  float beta = 0.f;
  for (const FlatRange& range : ranges) {
    kernels::sum_of_squares(store_.gradients(range), workspace, {slot, beta});
    beta = 1.f;
  }
}

void Optimizer::update_on_device(StepScalars& scalars) {
  for (const SharePiece& piece : on_device_->pieces)
    rule_.update(
        on_device_->call_for(piece, store_.gradients(piece.of_store),
                             store_.weights(piece.of_store), scalars.tensor(), config_, seed_),
        rule_.options);
}

void Optimizer::update(StepScalars& scalars, bool sticky) {
  kernels::clip_factor(scalars.tensor(), {.max_norm = config_.clip_grad, .sticky = sticky});
  if (on_host_) on_host_->begin(scalars);
  if (on_device_) update_on_device(scalars);  // while the host's share travels
  if (on_host_) on_host_->finish();
}

std::vector<OptimizerState> Optimizer::states() const {
  std::vector<OptimizerState> states;
  const auto add = [&](const std::string& name, const auto& of) {
    if (on_host_) states.push_back({name, of(on_host_->share()), on_host_->share().ranges});
    if (on_device_) states.push_back({name, of(*on_device_), on_device_->ranges});
  };
  const DType weights = store_.weights().dtype();
  const std::vector<RuleState> of_rule = rule_.states(config_, acc_dtype(weights));
  for (size_t i = 0; i < of_rule.size(); ++i)
    add(of_rule[i].name, [i](const StateShare& share) { return share.states[i]; });
  const auto master = [](const StateShare& share) { return share.master; };
  if (weights == DType::bf16) add("master_remainder", master);
  if (weights == DType::f16) add("master", master);
  return states;
}

}  // namespace phx
