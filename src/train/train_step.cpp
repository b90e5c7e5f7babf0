#include "train/train_step.h"

#include "core/autograd.h"
#include "kernels/random_fill.h"
#include "kernels/sums.h"

namespace phx {

namespace {

void set(Tensor& scalar, double value) {
  kernels::fill_constant(scalar, kernels::whole_box(scalar), value);
}

// The allocations of a step come from one plan (core/memory.h).
class PlannedStep {
 public:
  PlannedStep(Runtime& runtime, const std::string& kind) : allocator_(runtime.allocator()) {
    allocator_.begin_step(kind);
  }
  ~PlannedStep() { allocator_.end_step(); }
  PlannedStep(const PlannedStep&) = delete;
  PlannedStep& operator=(const PlannedStep&) = delete;

 private:
  Allocator& allocator_;
};

}  // namespace

TrainStep::TrainStep(GptModel& model, ParameterStore& store, Optimizer& optimizer,
                     const OptimizerConfig& config, uint64_t seed)
    : model_(model),
      store_(store),
      optimizer_(optimizer),
      config_(config),
      seed_(seed),
      scalars_(store.weights().device()) {
  const Device device = store.weights().device();
  const DType acc = acc_dtype(store.weights().dtype());
  grad_scale_ = empty({1}, acc, device, Purpose::runtime);
  one_ = empty({1}, acc, device, Purpose::runtime);
  set(one_, 1.0);
}

void TrainStep::run(const BatchLoader& loader, const StepSettings& settings) {
  std::vector<Batch> micro_batches;
  for (int64_t k = 0; k < loader.shape().num_micro_batches; ++k)
    micro_batches.push_back(loader.micro_batch(k));
  run(micro_batches, loader.tokens(), loader.first_sample(0), settings);
}

void TrainStep::run(std::span<const Batch> micro_batches, int64_t tokens, int64_t first_sample,
                    const StepSettings& settings) {
  Runtime& runtime = store_.weights().runtime();
  PlannedStep planned(runtime, "train");
  StepValues values =
      step_values(settings.update, config_.adam_beta1, config_.adam_beta2, double(tokens));
  values.lr = settings.lr;
  values.decoupled_lr = settings.decoupled_lr.value_or(settings.lr);
  values.weight_decay = settings.weight_decay;
  values.loss_scale = settings.loss_scale;
  scalars_.begin_step(values);
  set(grad_scale_, settings.loss_scale * values.inverse_tokens);

  store_.begin_step();
  for (size_t k = 0; k < micro_batches.size(); ++k) {
    const ForwardContext context{
        .seed = seed_, .step = settings.iteration, .first_sample = first_sample};
    first_sample += micro_batches[k].tokens.dim(1);
    LmLoss loss = model_.loss(micro_batches[k], grad_scale_, context);
    kernels::sum(loss.loss_sum, {scalars_.slot(Slot::loss_sum), k == 0 ? 0.f : 1.f});
    backward(loss.loss_sum, one_);
  }
  store_.finish_step();
  optimizer_.step(scalars_, settings.sticky_skip);
  scalars_.publish();
}

std::optional<double> TrainStep::evaluate(BatchLoader& batch, int64_t first_sample,
                                          int64_t num_batches, const std::function<bool()>& stop) {
  Runtime& runtime = store_.weights().runtime();
  GradMode off(runtime, false);
  double tokens = 0;
  Tensor total = zeros({1}, DType::f64, runtime.device());
  for (int64_t i = 0; i < num_batches; ++i) {
    if (stop && stop()) return std::nullopt;
    PlannedStep planned(runtime, "evaluate");
    batch.load(first_sample + i * batch.shape().samples());
    tokens += double(batch.tokens());
    for (int64_t k = 0; k < batch.shape().num_micro_batches; ++k) {
      const ForwardContext context{.seed = seed_, .training = false};
      const LmLoss loss = model_.loss(batch.micro_batch(k), Tensor(), context);
      kernels::sum(loss.loss_sum, {total, 1.f});
    }
  }
  if (runtime.kind() == DeviceKind::meta) return 0;
  return to_values(total)[0] / tokens;
}

}  // namespace phx
