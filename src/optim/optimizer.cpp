#include "optim/optimizer.h"

#include "kernels/adamw.h"
#include "kernels/clip_factor.h"
#include "kernels/elementwise.h"
#include "kernels/sums.h"

namespace phx {

namespace {

Tensor part(const Tensor& flat, const FlatRange& range) {
  return flat.rows(range.offset, range.count);
}

}  // namespace

Optimizer::Optimizer(ParameterStore& store, const OptimizerConfig& config,
                     std::vector<FlatRange> owned)
    : store_(store), config_(config), owned_(std::move(owned)) {
  PHX_CHECK(config.optimizer == OptimizerKind::adam, "only --optimizer adam is in this build");
  if (owned_.empty()) owned_ = {store.all()};
  int64_t size = 0;
  for (const FlatRange& range : owned_) size += range.count;
  const Tensor& weights = store.weights();
  const auto zero_state = [&](DType dtype) {
    Tensor state = empty({size}, dtype, weights.device(), Purpose::optimizer);
    set_zero(state);
    return state;
  };
  const DType acc = acc_dtype(weights.dtype());
  exp_avg_ = zero_state(acc);
  exp_avg_sq_ = zero_state(acc);
  if (weights.dtype() == DType::bf16) master_ = zero_state(DType::u16);
  if (weights.dtype() == DType::f16) master_ = zero_state(DType::f32);
  masters_from_weights();
}

void Optimizer::masters_from_weights() {
  if (!master_.defined()) return;
  if (master_.dtype() == DType::u16) {
    set_zero(master_);  // the master is the weight, nothing remains
    return;
  }
  int64_t at = 0;
  for (const FlatRange& range : owned_) {
    Tensor master = part(master_, {at, range.count});
    kernels::cast(part(store_.weights(), range), master);
    at += range.count;
  }
}

void Optimizer::sum_squares(StepScalars& scalars, std::span<const FlatRange> ranges) {
  Tensor slot = scalars.slot(Slot::sum_squares);
  if (ranges.empty()) set_zero(slot);
  // As large on every rank, whatever it counts: ranks of one stage allocate alike.
  const Tensor workspace = kernels::sum_workspace(exp_avg_.numel(), slot.device());
  float beta = 0.f;
  for (const FlatRange& range : ranges) {
    kernels::sum_of_squares(part(store_.gradients(), range), workspace, {slot, beta});
    beta = 1.f;
  }
}

void Optimizer::update(StepScalars& scalars, bool sticky) {
  kernels::clip_factor(scalars.tensor(), {.max_norm = config_.clip_grad, .sticky = sticky});
  int64_t at = 0;  // of the owned range in the states
  for (const FlatRange& owned : owned_) {
    for (const FlatRun& run : store_.runs()) {
      const FlatRange of_run{run.offset, run.count};
      for (const FlatRange& range : intersection({&owned, 1}, {&of_run, 1})) {
        const FlatRange of_state{at + range.offset - owned.offset, range.count};
        kernels::adamw(part(store_.gradients(), range), scalars.tensor(),
                       {.beta1 = config_.adam_beta1,
                        .beta2 = config_.adam_beta2,
                        .eps = config_.adam_eps,
                        .decay = run.decays ? 1.0 : 0.0,
                        .lr = run.decoupled ? Slot::decoupled_lr : Slot::lr},
                       {.weight = part(store_.weights(), range),
                        .master = master_.defined() ? part(master_, of_state) : Tensor(),
                        .m = part(exp_avg_, of_state),
                        .v = part(exp_avg_sq_, of_state)});
      }
    }
    at += owned.count;
  }
}

std::vector<OptimizerState> Optimizer::states() const {
  std::vector<OptimizerState> states = {{"exp_avg", exp_avg_}, {"exp_avg_sq", exp_avg_sq_}};
  if (master_.defined())
    states.push_back({master_.dtype() == DType::u16 ? "master_remainder" : "master", master_});
  return states;
}

}  // namespace phx
