#include "train/trainer.h"

#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "checkpoint/one_file.h"
#include "train/log_line.h"
#include "train/memory_table.h"

namespace phx {

namespace {

// How many steps the host may run ahead of the device. fp16 with a dynamic scale needs each step's
// outcome before the next; a CPU has no "ahead".
int steps_ahead(const Session& session, const LossScaler& scaler) {
  const bool device_runs_alone = session.store.parameters()[0]->value().device().kind() == DeviceKind::cuda;
  return device_runs_alone && !scaler.dynamic() ? 1 : 0;
}

}  // namespace

Trainer::Trainer(Session& session, Terminal& terminal)
    : session_(session),
      terminal_(terminal),
      config_(session.config.train),
      lengths_(schedule_lengths(session.config.optim,
                                session.config.train.iterations() * session.config.train.global_batch(),
                                session.config.train.global_batch())),
      scaler_(session.config.optim, session.config.train.precision() == Precision::fp16),
      iterations_(session.config.train.iterations()) {
  state_.scaler = scaler_.state();
  load();
  enqueued_ = state_.iteration;
  if (!config_.tensorboard_dir.empty()) tensorboard_.emplace(config_.tensorboard_dir);
  if (!config_.metrics_file.empty()) metrics_.emplace(config_.metrics_file, state_.iteration);
  const TransformerConfig& model = session.config.model;
  flops_per_iteration_ =
      training_flops_of_batch(flops_shape(model), config_.global_batch(), model.seq_length);
}

void Trainer::load() {
  const std::optional<Loaded> loaded = load_session(session_);
  if (!loaded) {
    if (!config_.load.empty())
      log_warning(str_cat("--load ", config_.load, " holds no checkpoint: starting from initial weights"));
    return;
  }
  state_ = loaded->state;
  scaler_.restore(state_.scaler);
  last_saved_ = state_.iteration;
  terminal_.print(str_cat("loaded ", loaded->file.string(), ", iteration ", state_.iteration));
}

RunEnd Trainer::run() {
  start_ = interval_start_ = Clock::now();
  if (config_.skip_train) {
    validate("on validation set");
    return RunEnd::finished;
  }
  peak_flops_ = peak_flops(session_.store.weights().device(), session_.store.weights().dtype());
  bar_.emplace(terminal_, state_.iteration, iterations_);
  const int ahead = steps_ahead(session_, scaler_);
  std::optional<RunEnd> end;
  while (!end && enqueued_ < iterations_) {
    iterate();
    const int64_t i = enqueued_;
    const bool saves_now = saves() && config_.save_interval && i % *config_.save_interval == 0;
    const bool validates_now = config_.eval_interval && i % *config_.eval_interval == 0 && i < iterations_;
    const bool reports_now = i % config_.log_interval == 0 || i == 1 || i == iterations_;
    const bool wait = saves_now || validates_now || reports_now || signals_.caught() != 0 ||
                      session_.step.pending() > ahead;
    collect_until(saves_now || validates_now || reports_now || signals_.caught() != 0 ? 0 : ahead);
    if (wait) report(/*also_console=*/reports_now);
    if (!said_memory_) say_memory();
    if (saves_now) save();
    if (validates_now) validate("");
    end = time_to_stop();
  }
  collect_until(0);
  bar_.reset();
  if (saves() && last_saved_ != state_.iteration) save();
  if (!end && config_.eval_interval && config_.eval_iters > 0) validate("on validation set");
  return end.value_or(RunEnd::finished);
}

void Trainer::iterate() {
  const int64_t gbs = config_.global_batch();
  session_.train_batches.load(enqueued_ * gbs);
  // Steps that are still under way are taken as successful; if one was not, this one is skipped too.
  const int64_t under_way = enqueued_ - state_.iteration;
  const int64_t scheduled = state_.scheduled_samples + under_way * gbs;
  last_lr_ = learning_rate(session_.config.optim, lengths_, scheduled);
  session_.step.run(session_.train_batches,
                    {.iteration = enqueued_ + 1,
                     .update = state_.updates + under_way + 1,
                     .lr = last_lr_,
                     .weight_decay = weight_decay(session_.config.optim, lengths_, scheduled),
                     .loss_scale = scaler_.scale(),
                     .sticky_skip = config_.check_for_nan_in_loss_and_grad && !scaler_.dynamic()});
  ++enqueued_;
}

void Trainer::collect_until(int pending) {
  while (session_.step.pending() > pending) take(session_.step.collect());
}

void Trainer::take(const StepResults& results) {
  const int64_t gbs = config_.global_batch();
  const double loss = results.loss_sum / results.tokens;
  const bool bad = results.nonfinite || !std::isfinite(loss);
  if (bad && !scaler_.dynamic() && config_.check_for_nan_in_loss_and_grad) stop_on_nonfinite(results);
  ++state_.iteration;
  state_.consumed_samples += gbs;
  ++interval_all_;
  if (results.skipped) {
    ++interval_skipped_;
    ++state_.skipped_iterations;
  } else {
    state_.scheduled_samples += gbs;
    ++state_.updates;
  }
  if (std::isfinite(loss)) {
    interval_loss_ += loss;
    ++interval_good_;
    last_loss_ = loss;
  } else {
    ++interval_nan_;
  }
  last_grad_norm_ = results.grad_norm;
  scaler_.update(results.nonfinite);
  state_.scaler = scaler_.state();
  if (metrics_) {
    IterationReport line{.iteration = state_.iteration,
                         .train_iterations = iterations_,
                         .consumed_samples = state_.consumed_samples,
                         .learning_rate = results.lr,
                         .global_batch_size = gbs,
                         .losses = {{"lm loss", loss}},
                         .loss_scale = results.loss_scale,
                         .grad_norm = results.grad_norm};
    line.milliseconds = measured_seconds() / double(std::max<int64_t>(interval_all_, 1)) * 1e3;
    metrics_->write(line);
  }
}

void Trainer::stop_on_nonfinite(const StepResults& results) {
  const double loss = results.loss_sum / results.tokens;
  bar_.reset();
  // The optimizer left everything as it was after the last good iteration, and so did the steps behind.
  std::string kept = "nothing was saved (no --save)";
  if (saves()) {
    if (last_saved_ != state_.iteration && state_.iteration > 0) save();
    kept = state_.iteration > 0 ? str_cat("the last good state is iteration ", state_.iteration, ", saved in ",
                                          checkpoint_file(config_.save, state_.iteration).string())
                                : "there was no good iteration before it";
  }
  throw_error(str_cat("iteration ", state_.iteration + 1, ": the loss is ", loss, " and the gradient norm ",
                      results.grad_norm, "; weights were left as they were after iteration ",
                      state_.iteration, "; ", kept,
                      "\n  hint: a lower --lr, a longer --lr-warmup-iters, or "
                      "--no-check-for-nan-in-loss-and-grad to go on regardless"));
}

double Trainer::measured_seconds() {
  return std::chrono::duration<double>(Clock::now() - interval_start_).count();
}

void Trainer::report(bool also_console) {
  const double tokens = double(config_.global_batch() * session_.config.model.seq_length);
  const double seconds = measured_seconds() / double(std::max<int64_t>(interval_all_, 1));
  tokens_per_second_ = tokens / seconds;
  if (bar_) bar_->update({.iteration = state_.iteration, .loss = last_loss_, .tokens_per_second = tokens_per_second_});
  const bool to_tensorboard =
      tensorboard_ && state_.iteration % config_.tensorboard_log_interval == 0;
  if (!also_console && !to_tensorboard) return;

  IterationReport report{.iteration = state_.iteration,
                         .train_iterations = iterations_,
                         .consumed_samples = state_.consumed_samples,
                         .milliseconds = seconds * 1e3,
                         .learning_rate = learning_rate(session_.config.optim, lengths_, state_.scheduled_samples),
                         .global_batch_size = config_.global_batch(),
                         .loss_scale = scaler_.scale(),
                         .grad_norm = last_grad_norm_,
                         .skipped_iterations = interval_skipped_,
                         .nan_iterations = interval_nan_,
                         .tokens_per_second = tokens_per_second_};
  const double flops_per_second = flops_per_iteration_ / seconds;
  report.tflops_per_gpu = flops_per_second / 1e12;
  if (peak_flops_) report.mfu = flops_per_second / *peak_flops_;
  if (to_tensorboard) {
    report.losses = {{"lm loss", last_loss_}};
    tensorboard_->write(report);
  }
  if (!also_console) return;
  if (interval_good_ > 0) report.losses = {{"lm loss", interval_loss_ / double(interval_good_)}};
  terminal_.print(log_line(report, time_stamp(std::chrono::system_clock::now())));
  interval_loss_ = 0;
  interval_good_ = interval_all_ = interval_skipped_ = interval_nan_ = 0;
  interval_start_ = Clock::now();
}

void Trainer::say_memory() {
  said_memory_ = true;
  terminal_.print(memory_table(session_.store.weights().runtime().allocator().report()));
}

void Trainer::validate(const std::string& where) {
  if (!session_.valid_batches) {
    log_warning("there is no validation data (--split leaves none): nothing to evaluate");
    return;
  }
  const double loss = session_.step.evaluate(*session_.valid_batches, state_.consumed_valid_samples,
                                             config_.eval_iters);
  state_.consumed_valid_samples += config_.eval_iters * config_.global_batch();
  const ValidationReport report{.iteration = state_.iteration,
                                .consumed_samples = state_.consumed_samples,
                                .losses = {{"lm loss", loss}},
                                .where = where};
  terminal_.print(validation_block(report));
  if (tensorboard_) tensorboard_->write(report);
  if (metrics_) metrics_->write(report);
  interval_start_ = Clock::now();  // the evaluation's time is not the iterations'
}

void Trainer::save() {
  save_session(config_.save, session_, state_);
  last_saved_ = state_.iteration;
  terminal_.print(str_cat("saved ", checkpoint_file(config_.save, state_.iteration).string()));
}

std::optional<RunEnd> Trainer::time_to_stop() {
  if (signals_.caught() != 0) {
    terminal_.print(str_cat("caught ", StopSignals::name(signals_.caught()), " at iteration ", enqueued_,
                            saves() ? ": saving and stopping" : ": stopping (no --save, so nothing is kept)"));
    return RunEnd::stopped_by_signal;
  }
  const double minutes = std::chrono::duration<double>(Clock::now() - start_).count() / 60;
  if (config_.exit_duration_in_mins && minutes > double(*config_.exit_duration_in_mins))
    return RunEnd::stopped_early;
  if (config_.exit_interval && enqueued_ % *config_.exit_interval == 0 && enqueued_ < iterations_)
    return RunEnd::stopped_early;
  return std::nullopt;
}

}  // namespace phx
