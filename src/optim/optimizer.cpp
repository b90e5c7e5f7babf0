#include "optim/optimizer.h"

#include "kernels/adamw.h"
#include "kernels/clip_factor.h"
#include "kernels/elementwise.h"
#include "kernels/sums.h"

namespace phx {

namespace {

Tensor zero_state(const Tensor& weights, DType dtype) {
  Tensor state = empty(weights.shape(), dtype, weights.device(), Purpose::optimizer);
  set_zero(state);
  return state;
}

}  // namespace

Optimizer::Optimizer(ParameterStore& store, const OptimizerConfig& config)
    : store_(store), config_(config) {
  PHX_CHECK(config.optimizer == OptimizerKind::adam, "only --optimizer adam is in this build");
  const Tensor& weights = store.weights();
  const DType acc = acc_dtype(weights.dtype());
  exp_avg_ = zero_state(weights, acc);
  exp_avg_sq_ = zero_state(weights, acc);
  if (weights.dtype() == DType::bf16) master_ = zero_state(weights, DType::u16);
  if (weights.dtype() == DType::f16) master_ = zero_state(weights, DType::f32);
  masters_from_weights();
}

void Optimizer::masters_from_weights() {
  if (!master_.defined()) return;
  if (master_.dtype() == DType::u16) {
    set_zero(master_);  // the master is the weight, nothing remains
  } else {
    kernels::cast(store_.weights(), master_);
  }
}

void Optimizer::step(StepScalars& scalars, bool sticky) {
  kernels::sum_of_squares(store_.gradients(), {scalars.slot(Slot::sum_squares), 0.f});
  kernels::clip_factor(scalars.tensor(), {.max_norm = config_.clip_grad, .sticky = sticky});
  for (const FlatRun& run : store_.runs()) {
    const auto part = [&](const Tensor& flat) { return flat.rows(run.offset, run.count); };
    kernels::adamw(part(store_.gradients()), scalars.tensor(),
                   {.beta1 = config_.adam_beta1,
                    .beta2 = config_.adam_beta2,
                    .eps = config_.adam_eps,
                    .decay = run.decays ? 1.0 : 0.0,
                    .lr = run.decoupled ? Slot::decoupled_lr : Slot::lr},
                   {.weight = part(store_.weights()),
                    .master = master_.defined() ? part(master_) : Tensor(),
                    .m = part(exp_avg_),
                    .v = part(exp_avg_sq_)});
  }
}

std::vector<OptimizerState> Optimizer::states() const {
  std::vector<OptimizerState> states = {{"exp_avg", exp_avg_}, {"exp_avg_sq", exp_avg_sq_}};
  if (master_.defined())
    states.push_back({master_.dtype() == DType::u16 ? "master_remainder" : "master", master_});
  return states;
}

}  // namespace phx
