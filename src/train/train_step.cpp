#include "phalanx/train/train_step.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "phalanx/core/op_trace.h"
#include "phalanx/kernels/elementwise.h"
#include "phalanx/kernels/sums.h"
#include "phalanx/parallel/pipeline/engine.h"

namespace phx {

namespace {

// The allocations of a step come from one plan (core/memory.h).
class PlannedStep {
 public:
  PlannedStep(Runtime& runtime, const char* kind, int64_t micro_batches)
      : allocator_(runtime.allocator()) {
    allocator_.begin_step(str_cat(kind, " of ", micro_batches, " micro-batches"));
  }
  ~PlannedStep() { allocator_.end_step(); }
  PlannedStep(const PlannedStep&) = delete;
  PlannedStep& operator=(const PlannedStep&) = delete;

 private:
  Allocator& allocator_;
};

}  // namespace

TrainStep::TrainStep(const StepParts& parts, const OptimizerConfig& config, uint64_t seed,
                     const LossOptions& loss, const TallyOptions& tally)
    : parts_(parts),
      config_(config),
      seed_(seed),
      scalars_(parts.store.weights().device()),
      loss_(loss),
      tally_options_(tally) {
  const Tensor& weights = parts.store.weights();
  const int64_t scales = loss.average == LossAverage::token ? 1 : loss.most_micro_batches;
  grad_scale_ = empty({scales}, acc_dtype(weights.dtype()), weights.device(), Purpose::runtime);
  if (loss.means)
    mean_scale_ =
        empty({loss.most_micro_batches}, grad_scale_.dtype(), weights.device(), Purpose::runtime);
  if (loss.ahead > 0)
    ahead_tally_ = empty({loss.ahead}, DType::f64, weights.device(), Purpose::runtime);
  if (loss.ahead > 0)
    ahead_sums_ = empty({2 * loss.ahead}, DType::f64, weights.device(), Purpose::runtime);
  if (tally.layers > 0)
    for (Tensor* made : {&tally_, &tally_sums_})
      *made = empty({tally.layers, tally.width}, DType::f64, weights.device(), Purpose::runtime);

  const Mesh& mesh = parts.mesh;
  const std::vector<FlatRange>& owned = parts.data_parallel.owned();
  const auto owned_of = [&](const std::function<bool(const Parameter&)>& f) {
    return intersection(parts.store.ranges(f), owned);
  };
  for (const Axis axis : {Axis::tp, Axis::pp}) {
    std::vector<FlatRange> ranges = owned_of(
        [&](const Parameter& p) { return mesh.ownership_of(p.axes()).summed_after.has(axis); });
    if (!ranges.empty()) later_sums_.push_back({mesh.summed_after(axis), std::move(ranges)});
  }
  counted_ = owned_of([&](const Parameter& p) {
    return mesh.ownership_of(p.axes()).counts(parts.data_parallel.division_of_state(p.axes().grid));
  });
}

const CheckedSchedule& TrainStep::schedule(const char* kind, int64_t micro_batches) {
  const std::pair key(std::string(kind), micro_batches);
  if (const auto found = schedules_.find(key); found != schedules_.end()) return found->second;
  CheckedSchedule made(key.first == "train" ? parts_.layout.train_schedule(micro_batches)
                                            : parts_.layout.evaluate_schedule(micro_batches));
  return schedules_.emplace(key, std::move(made)).first->second;
}

void TrainStep::run(const BatchLoader& loader, const StepSettings& settings) {
  run({.batch = [&](int k) { return loader.micro_batch(k); },
       .samples = [&](int k) { return loader.samples(k); }},
      loader.tokens(), settings);
}

void TrainStep::run(std::span<const Batch> micro_batches, Counts counts, int64_t first_sample,
                    const StepSettings& settings) {
  PHX_ASSERT(micro_batches.size() == counts.size(), micro_batches.size(), " micro-batches and ",
             counts.size(), " counts");
  run({.batch = [&](int k) { return micro_batches[size_t(k)]; },
       .samples =
           [&](int k) {
             return SamplePlace{.first = first_sample +
                                         k * micro_batches[size_t(k)].tensors.at("tokens").dim(1)};
           }},
      counts, settings);
}

void TrainStep::run(StageWork work, Counts counts, const StepSettings& settings) {
  const auto micro_batches = int64_t(counts.size());
  Runtime& runtime = parts_.store.weights().runtime();
  if (!warm_) warm_up(work);
  const CheckedSchedule& plan = schedule("train", micro_batches);
  PlannedStep planned(runtime, "train", micro_batches);
  begin(counts, settings);
  work.context = {.seed = seed_,
                  .step = settings.iteration,
                  .router_tally = tally_,
                  .ahead_tally = ahead_tally_};
  if (tally_.defined()) set_zero(tally_);
  count_ahead(work, micro_batches);
  work.grad_scale = grad_scale_;
  work.mean_scale = mean_scale_;
  Tensor loss_sum = scalars_.slot(Slot::loss_sum);
  work.loss_sum = loss_sum;
  work.before_forward = [this] { parts_.data_parallel.begin_forward(); };
  work.after_forward = [this](int chunk) { parts_.data_parallel.end_forward(chunk); };

  parts_.store.begin_step();
  parts_.data_parallel.begin_step(micro_batches);
  parts_.stage.begin(std::move(work));
  run_schedule(plan, parts_.mesh.pp_rank(), parts_.stage, parts_.mesh.links());
  parts_.stage.begin({});
  // All tensor-parallel ranks add the losses up, so that all allocate alike; one of them counts.
  if (!counts_loss()) set_zero(loss_sum);
  reduce_gradients();

  {
    const OpScope traced(runtime, {.what = "gradient_norm", .kind = OpKind::phase});
    parts_.optimizer.sum_squares(scalars_, counted_);
    if (settings.spoiled) {  // the sum over the ranks is none either, and all of them skip
      Tensor squares = scalars_.slot(Slot::sum_squares);
      kernels::fill(squares, std::numeric_limits<double>::quiet_NaN());
    }
    if (parts_.mesh.world() != nullptr)
      parts_.mesh.world()->all_reduce(scalars_.rank_sums(), runtime.stream(StreamName::compute));
  }
  parts_.data_parallel.wait_for_weights();
  if (settings.before_update) settings.before_update();
  const OpScope traced(runtime, {.what = "update", .kind = OpKind::phase});
  parts_.optimizer.update(scalars_, settings.sticky_skip);
  end_step();
  parts_.data_parallel.gather_weights();
  scalars_.publish();
}

// A layer's tokens are those of all ranks of its stage.
void TrainStep::end_step() {
  if (!tally_options_.at_end_of_step) return;
  copy(tally_, tally_sums_);
  const Stream stream = tally_.runtime().stream(StreamName::compute);
  for (Communicator* ranks : {parts_.mesh.tp(), parts_.mesh.dp_cp()})
    if (ranks != nullptr) ranks->all_reduce(tally_sums_, stream);
  parts_.stage.end_step({.tally = tally_sums_, .skip = scalars_.slot(Slot::skip)});
}

std::vector<double> TrainStep::router_tally() {
  if (!tally_.defined()) return {};
  copy(tally_, tally_sums_);
  if (parts_.mesh.world() != nullptr)
    parts_.mesh.world()->all_reduce(tally_sums_, tally_.runtime().stream(StreamName::compute));
  return to_values(tally_sums_);
}

void TrainStep::count_ahead(const StageWork& work, int64_t micro_batches) {
  if (!ahead_tally_.defined()) return;
  set_zero(ahead_tally_);
  counted_ahead_.assign(size_t(loss_.ahead), 0);
  if (!parts_.mesh.last_stage()) return;
  for (int64_t i = 0; i < micro_batches; ++i) {
    const std::vector<int64_t> counted = work.batch(int(i)).counted;
    for (size_t k = 0; k < counted_ahead_.size(); ++k) counted_ahead_[k] += counted.at(k + 1);
  }
}

std::vector<double> TrainStep::losses_ahead() {
  if (!ahead_tally_.defined()) return {};
  Tensor sums = ahead_sums_.rows(0, loss_.ahead);
  copy(ahead_tally_, sums);
  for (int64_t k = 0; k < loss_.ahead; ++k) {
    Tensor count = ahead_sums_.rows(loss_.ahead + k, 1);
    kernels::fill(count, counts_samples() ? double(counted_ahead_[size_t(k)]) : 0.0);
  }
  // Every tensor-parallel rank has added the same.
  if (!counts_loss()) set_zero(ahead_sums_);
  if (parts_.mesh.world() != nullptr)
    parts_.mesh.world()->all_reduce(ahead_sums_, ahead_sums_.runtime().stream(StreamName::compute));
  const std::vector<double> values = to_values(ahead_sums_);
  std::vector<double> means;
  for (size_t k = 0; k < counted_ahead_.size(); ++k)
    means.push_back(values[k] / std::max(values[counted_ahead_.size() + k], 1.0));
  return means;
}

// On a GPU the first launch of a kernel loads it, which may wait for everything that runs: also for
// a message that waits for its peer, who may wait for us. So where messages are under way while a
// stage computes, it has computed once before.
void TrainStep::warm_up(const StageWork& work) {
  warm_ = true;
  const PipelineLinks links = parts_.mesh.links();
  const Communicator* link = links.forward_in != nullptr ? links.forward_in : links.forward_out;
  if (link == nullptr || !link->asynchronous()) return;
  StageWork rehearsal = work;
  rehearsal.context = {.seed = seed_, .step = 0, .ahead_tally = ahead_tally_, .rehearsal = true};
  rehearsal.grad_scale = grad_scale_;
  if (mean_scale_.defined()) kernels::fill(mean_scale_, 0.0);
  rehearsal.loss_sum = scalars_.slot(Slot::loss_sum);  // a step sets it to zero when it begins
  kernels::fill(grad_scale_, 1.0);
  parts_.store.begin_step();
  parts_.data_parallel.begin_step(1);
  const Device device = parts_.store.weights().device();
  // Twice: the second micro-batch adds to gradients where the first one overwrites them. Then as in
  // an evaluation, whose loss has kernels of its own.
  for (const bool training : {true, true, false}) {
    GradMode mode(device.runtime(), training);
    rehearsal.context.training = training;
    rehearsal.grad_scale = training ? grad_scale_ : Tensor();
    rehearsal.mean_scale = training ? mean_scale_ : Tensor();
    parts_.stage.begin(rehearsal);
    for (int chunk = 0; chunk < parts_.layout.placement.chunks; ++chunk) {
      const auto blank = [&](const MessageSpec& specs) {
        StageMessage message;
        for (const TensorSpec& spec : specs)
          message.add(spec.name, zeros(spec.shape, spec.dtype, device));
        return message;
      };
      parts_.stage.forward(0, chunk, blank(parts_.stage.input(0, chunk)));
      if (training)
        parts_.stage.backward(0, chunk, blank(parts_.stage.output(0, chunk)),
                              /*defer_weights=*/false);
    }
  }
  parts_.stage.begin({});
  device.runtime().synchronize();
  parts_.data_parallel.abandon_step();
}

void TrainStep::begin(Counts counts, const StepSettings& settings) {
  const int64_t tokens = std::reduce(counts.begin(), counts.end());
  StepValues values = step_values(settings.update, config_.adam_beta1, config_.adam_beta2,
                                  counts_samples() ? double(tokens) : 0.0);
  values.lr = settings.lr;
  values.decoupled_lr = settings.decoupled_lr.value_or(settings.lr);
  values.weight_decay = settings.weight_decay;
  values.loss_scale = settings.loss_scale;
  values.stop_votes = settings.stop_vote;
  scalars_.begin_step(values);
  Tensor loss_sum = scalars_.slot(Slot::loss_sum);
  set_zero(loss_sum);
  if (Communicator* ranks = parts_.mesh.dp_cp(); ranks != nullptr)
    ranks->all_reduce(scalars_.slot(Slot::tokens), loss_sum.runtime().stream(StreamName::compute));
  scalars_.invert_tokens();
  if (loss_.average == LossAverage::token) {
    kernels::cast(scalars_.slot(Slot::grad_scale), grad_scale_);
  } else {
    const double all = double(counts.size()) * double(parts_.mesh.sizes().dp);
    for (size_t k = 0; k < counts.size(); ++k) {
      Tensor scale = grad_scale_.rows(int64_t(k), 1);
      kernels::fill(scale, settings.loss_scale / (double(std::max<int64_t>(counts[k], 1)) * all));
    }
  }
  if (!mean_scale_.defined()) return;
  for (int64_t k = 0; k < int64_t(counts.size()); ++k)
    kernels::scale(grad_scale_.rows(grad_scale_.numel() > 1 ? k : 0, 1), double(counts[size_t(k)]),
                   {mean_scale_.rows(k, 1)});
}

void TrainStep::reduce_gradients() {
  const OpScope traced(parts_.store.weights().runtime(),
                       {.what = "reduce_gradients", .kind = OpKind::phase});
  parts_.data_parallel.finish_step();
  const Stream stream = parts_.store.gradients().runtime().stream(StreamName::compute);
  for (const LaterSum& sum : later_sums_)
    for (const FlatRange& range : sum.ranges)
      sum.ranks->all_reduce(parts_.store.gradients(range), stream);
}

std::optional<double> TrainStep::evaluate(BatchLoader& batch, int64_t first_sample,
                                          int64_t num_batches, const std::function<bool()>& stop) {
  Runtime& runtime = parts_.store.weights().runtime();
  GradMode off(runtime, false);
  parts_.data_parallel.wait_for_weights();
  const int64_t micro_batches = batch.shape().num_micro_batches;
  const CheckedSchedule& plan = schedule("evaluate", micro_batches);
  std::vector<int64_t> counts;  // of this rank: those of others may be masked otherwise
  std::exception_ptr unread;
  // Losses, tokens; or means of micro-batches, and how many there were. Then ranks without data.
  Tensor totals = zeros({3}, DType::f64, runtime.device());
  Tensor total = totals.rows(0, 1), weight = totals.rows(1, 1), failures = totals.rows(2, 1);
  Tensor losses = total;  // or one a micro-batch of all batches
  if (loss_.evaluates_micro_batches)
    losses = zeros({num_batches * micro_batches}, DType::f64, runtime.device());
  for (int64_t i = 0; i < num_batches; ++i) {
    // Several ranks stop together, after the evaluation: nobody knows of another's signal here.
    if (parts_.mesh.world() == nullptr && stop && stop()) return std::nullopt;
    PlannedStep planned(runtime, "evaluate", micro_batches);
    const int64_t first = first_sample + i * batch.shape().samples();
    if (parts_.mesh.world() == nullptr) {
      batch.load(first);
    } else if (const auto error = batch.try_load(first, micro_batches); error && !unread) {
      unread = error;
    }
    if (!warm_)
      warm_up({.batch = [&](int k) { return batch.micro_batch(k); },
               .samples = [&](int k) { return batch.samples(k); }});
    counts.insert(counts.end(), batch.tokens().begin(), batch.tokens().end());
    parts_.data_parallel.begin_forwards(str_cat("evaluate of ", micro_batches));
    parts_.stage.begin({.batch = [&](int k) { return batch.micro_batch(k); },
                        .samples = [&](int k) { return batch.samples(k); },
                        .context = {.seed = seed_, .training = false},
                        .grad_scale = {},
                        .loss_sum = loss_.evaluates_micro_batches
                                        ? losses.rows(i * micro_batches, micro_batches)
                                        : total});
    run_schedule(plan, parts_.mesh.pp_rank(), parts_.stage, parts_.mesh.links());
    parts_.stage.begin({});
    parts_.data_parallel.end_forwards();
  }
  if (loss_.evaluates_micro_batches) {
    kernels::fill(total, mean_of_means(losses, counts));
    kernels::fill(weight, 1.0);
  } else {
    kernels::fill(weight, double(std::reduce(counts.begin(), counts.end())));
  }
  if (!counts_samples()) set_zero(weight);
  if (!counts_loss()) set_zero(totals);
  kernels::fill(failures, unread ? 1.0 : 0.0);
  if (parts_.mesh.world() != nullptr)
    parts_.mesh.world()->all_reduce(totals, runtime.stream(StreamName::compute));
  if (runtime.kind() == DeviceKind::meta) return 0;
  const std::vector<double> sums = to_values(totals);
  if (sums[2] > 0) throw UnreadData(unread);
  return sums[0] / std::max(sums[1], 1.0);
}

// Of this rank's micro-batches; one without a token that counts has a mean of 0, as in Megatron.
double TrainStep::mean_of_means(const Tensor& losses, Counts counts) {
  if (losses.runtime().kind() == DeviceKind::meta) return 0;
  const std::vector<double> sums = to_values(losses);
  double mean = 0;
  for (size_t k = 0; k < counts.size(); ++k)
    mean += sums[k] / double(std::max<int64_t>(counts[k], 1));
  return mean / double(std::max<size_t>(counts.size(), 1));
}

}  // namespace phx
