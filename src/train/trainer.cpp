#include "phalanx/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/log.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/report/log_line.h"

namespace phx {

namespace {

// How many steps the host may run ahead of the device. Where a skipped step does not stop those
// behind it (fp16 with a dynamic scale, checks switched off), each needs the outcome of the one
// before; a CPU has no "ahead".
int steps_ahead(const Session& session, const LossScaler& scaler) {
  const bool device_runs_alone = session.store.weights().device().kind() == DeviceKind::cuda;
  const bool sticky = session.config.train.check_for_nan_in_loss_and_grad && !scaler.dynamic();
  return device_runs_alone && sticky ? 1 : 0;
}

// Votes to stop: a signal counts 1, a rank whose time is over so little that the sum still tells
// which of the two it was; and one that cannot read its data so much that no number of signals
// comes to it.
constexpr double kSignalVote = 1, kTimeVote = 1.0 / (1 << 30), kUnreadVote = int64_t{1} << 40;

// An error that all was done about that could be done.
class Left : public Error {
 public:
  using Error::Error;
};

StopSignals::Words words_for_signals(const TrainConfig& config) {
  const std::string saving = config.save.empty() ? "; nothing is saved, as there is no --save"
                                                 : str_cat(", then saving to ", config.save);
  return {.first = "stopping after this iteration" + saving,
          .second = str_cat("still stopping after this iteration", saving,
                            "; a third Ctrl-C ends the run at once, without saving")};
}

}  // namespace

Trainer::Trainer(Session& session, Terminal& terminal, const TrainerOptions& options)
    : session_(session),
      terminal_(terminal),
      config_(session.config.train),
      lengths_(schedule_lengths(session)),
      scaler_(session.config.optim, session.config.train.precision() == Precision::fp16),
      iterations_(session.config.train.iterations(session.batch_schedule)),
      disk_(*options.disk),
      measures_peak_(options.measures_peak),
      ranks_here_(options.ranks_here),
      folder_is_locked_(options.folder_is_locked),
      world_(options.world),
      parts_patience_(options.parts_patience),
      profiler_(config_, session.mesh, session.store.weights().runtime(), terminal) {
  if (options.catches_signals)
    signals_.emplace(options.answers_signals ? words_for_signals(config_) : StopSignals::Words{});
  state_.scaler = scaler_.state();
  load();
  enqueued_ = state_.iteration;
  if (speaks()) open_side_outputs();
  const int64_t batch = session.batch_schedule.largest();
  if (config_.decrease_batch_size_if_needed && config_.global_batch_size.value_or(batch) != batch)
    terminal_.print(str_cat("--decrease-batch-size-if-needed: global batches of ", batch,
                            " instead of ", *config_.global_batch_size));
}

void Trainer::load() {
  const std::optional<Loaded> loaded = load_session(session_);
  if (!loaded) {
    if (!config_.load.empty() && speaks())
      log_warning(
          str_cat("--load ", config_.load, " holds no checkpoint: starting from initial weights"));
    return;
  }
  loaded_path_ = loaded->path;
  const std::string tensors =
      str_cat(loaded->report.tensors, " of ", loaded->report.tensors, " tensors");
  if (!loaded->state) {
    terminal_.print(str_cat("loaded the weights of ", loaded->path.string(), ", ", tensors));
    return;
  }
  state_ = *loaded->state;
  if (state_.scaler) scaler_.restore(*state_.scaler);
  state_.scaler = scaler_.state();  // of a run without one: what the flags say
  if (saves() && loaded->path == checkpoint_path(config_.save, state_.iteration))
    last_saved_ = state_.iteration;
  terminal_.print(
      str_cat("loaded ", loaded->path.string(), ", iteration ", state_.iteration, ", ", tensors));
}

RunEnd Trainer::run() {
  try {
    return train();
  } catch (const Left&) {
    throw;
  } catch (const UnreadData& unread) {
    leave_without_data(unread);
  } catch (const std::exception& error) {
    leave_after(error);
  }
}

std::string Trainer::save_before_leaving() {
  if (last_good_ == 0)
    return str_cat("there was no good iteration in this run",
                   loaded_path_.empty() ? "" : "; it began from " + loaded_path_.string());
  if (!saves()) return "nothing was saved (no --save)";
  if (last_saved_ != state_.iteration) save();
  finish_save();
  return str_cat("the last good state is iteration ", state_.iteration, ", saved in ",
                 checkpoint_path(config_.save, state_.iteration).string());
}

// All ranks are here, and none has changed its weights since the last good iteration.
void Trainer::leave_without_data(const UnreadData& unread) {
  bar_.reset();
  const std::string kept = save_before_leaving();
  if (!unread.own) {
    // The rank that has the error fails now, and this wait with its words.
    session_.mesh.world()->barrier();
    throw Left(str_cat(unread.what(), "; ", kept));
  }
  try {
    std::rethrow_exception(unread.own);
  } catch (const std::exception& error) {
    throw Left(str_cat(error.what(), "\n  ", kept));
  }
}

// Ranks cannot save together any more: some do not know of this error, some may be dead. A rank
// that holds the whole state saves it; those that hold parts write them one by one.
void Trainer::leave_after(const std::exception& error) {
  bar_.reset();
  if (!parts_run_.empty()) {
    save_own_part(error);
    throw;
  }
  if (updating_ || saving_ || config_.skip_train) throw;
  if (!alone()) {
    save_own_copy();
    throw;
  }
  std::string kept;
  try {
    collect_until(0);
    kept = save_before_leaving();
  } catch (const std::exception& second) {
    kept = str_cat("and the state of iteration ", state_.iteration,
                   " could not be saved: ", second.what());
  }
  throw Left(str_cat(error.what(), "\n  ", kept));
}

RunEnd Trainer::train() {
  start_ = Clock::now();
  if (saves() && !config_.skip_train) {
    make_saver();
    agree_on_parts();
  }
  if (config_.skip_train) {
    validate(session_.valid_batches, "on validation set");
    if (session_.test_batches) validate(session_.test_batches, "on test set");
    return caught() != 0 ? RunEnd::stopped_by_signal : RunEnd::finished;
  }
  if (speaks() && measures_peak_)
    peak_flops_ = peak_flops(session_.store.weights().device(), session_.store.weights().dtype());
  interval_start_ = Clock::now();
  if (state_.iteration >= iterations_)
    terminal_.print(
        str_cat("nothing to train: iteration ", state_.iteration, " of ", iterations_, " is done"));
  bar_.emplace(terminal_, state_.iteration, iterations_);
  const int ahead = steps_ahead(session_, scaler_);
  const int64_t first = state_.iteration;
  std::optional<RunEnd> end;
  while (!end && enqueued_ < iterations_) {
    iterate();
    const int64_t i = enqueued_;
    const bool saves_now = saves() && config_.save_interval && i % *config_.save_interval == 0;
    const bool validates_now = evaluates() && i % *config_.eval_interval == 0;
    const bool reports_now = i % config_.log_interval == 0 || i == 1 || i == iterations_;
    if (reports_now) look_at_tallies();
    collect_until(saves_now || validates_now || reports_now || (alone() && caught() != 0) ? 0
                                                                                          : ahead);
    update_bar();
    saving_ = true;
    if (saver_) say_saved(saver_->poll());
    saving_ = false;
    if (reports_now) report();
    if (i == 1 + first) say_kernels();
    if (i == 1 + first || i == 4 + first)
      say_memory();  // the first step, and when the arena is in use
    say_divergence();
    // Evaluation first, as in Megatron: the checkpoint then knows which validation samples are used
    // up.
    if (validates_now) validate(session_.valid_batches, "");
    if (saves_now) save();
    end = time_to_stop();
  }
  collect_until(0);
  profiler_.finish(enqueued_);
  bar_.reset();
  if (saves() && last_saved_ != state_.iteration) save();
  finish_save();
  if (!end && evaluates()) {
    validate(session_.valid_batches, "on validation set");
    if (session_.test_batches) validate(session_.test_batches, "on test set");
    if (caught() != 0) end = RunEnd::stopped_by_signal;
  }
  return end.value_or(RunEnd::finished);
}

void Trainer::iterate() {
  profiler_.before_iteration(enqueued_);
  // Steps that are still under way are taken as successful; if one was not, this one is skipped
  // too.
  const int64_t under_way = enqueued_ - state_.iteration;
  const int64_t consumed = session_.batch_schedule.after(state_.consumed_samples, under_way);
  if (alone())
    session_.load_batch(consumed);
  else if (const auto error = session_.try_load_batch(consumed); error && !unread_)
    unread_ = error;
  const int64_t scheduled = state_.scheduled_samples + consumed - state_.consumed_samples;
  const std::vector<LrSchedule>& lr_schedules = session_.config.catalogue.lr_schedules;
  session_.step.run(session_.train_batches,
                    {.iteration = enqueued_ + 1,
                     .update = state_.updates + under_way + 1,
                     .lr = learning_rate(session_.config.optim, lengths_, scheduled, lr_schedules),
                     .decoupled_lr = decoupled_learning_rate(session_.config.optim, lengths_,
                                                             scheduled, lr_schedules),
                     .weight_decay = weight_decay(session_.config.optim, lengths_, scheduled),
                     .loss_scale = scaler_.scale(),
                     .sticky_skip = config_.check_for_nan_in_loss_and_grad && !scaler_.dynamic(),
                     .stop_vote = unread_ ? kUnreadVote : stop_vote(),
                     .spoiled = unread_ != nullptr,
                     .before_update = [this] {
                       if (saver_) saver_->wait_for_copies();
                       updating_ = true;
                     }});
  updating_ = false;
  ++enqueued_;
  // This rank's documents stand for all ranks': the report is not worth an exchange.
  squared_lengths_.push_back(session_.train_batches.squared_lengths() *
                             session_.train_batches.shape().data_ranks);
}

void Trainer::collect_until(int pending) {
  while (session_.step.pending() > pending) take(session_.step.collect());
}

void Trainer::take(const StepResults& results) {
  if (results.stop_votes >= kUnreadVote) throw UnreadData(unread_);
  last_batch_ = session_.batch_schedule.size_at(state_.consumed_samples);
  const double loss = results.loss_sum / std::max(results.tokens, 1.0);
  // With a dynamic scale gradients may overflow now and then; a loss may not, nor gradients at the
  // smallest scale.
  const bool expected = scaler_.dynamic() && std::isfinite(loss) && !scaler_.at_minimum();
  if ((results.nonfinite || !std::isfinite(loss)) && !expected &&
      config_.check_for_nan_in_loss_and_grad)
    stop_on_nonfinite(results);
  ++state_.iteration;
  state_.consumed_samples += last_batch_;
  interval_samples_ += last_batch_;
  interval_squared_lengths_ += squared_lengths_.front();
  squared_lengths_.pop_front();
  ++interval_all_;
  if (results.skipped) {
    ++interval_skipped_;
    ++state_.skipped_iterations;
  } else {
    state_.scheduled_samples += last_batch_;
    ++state_.updates;
    last_good_ = state_.iteration;
  }
  if (std::isfinite(loss)) {
    interval_loss_ += loss;
    ++interval_good_;
    last_loss_ = loss;
  } else {
    ++interval_nan_;
  }
  last_grad_norm_ = results.grad_norm;
  stop_votes_ = results.stop_votes;
  scaler_.update(results.nonfinite);
  state_.scaler = scaler_.state();
  const bool to_tensorboard =
      tensorboard_ && state_.iteration % config_.tensorboard_log_interval == 0;
  if (!metrics_ && !to_tensorboard) return;
  IterationReport report = make_report();
  report.losses = {{"lm loss", loss}};
  report.skipped_iterations = results.skipped;
  report.nan_iterations = !std::isfinite(loss);
  add_tallies(report);
  if (metrics_) metrics_->write(report);
  if (to_tensorboard) tensorboard_->write(report);
}

void Trainer::stop_on_nonfinite(const StepResults& results) {
  const double loss = results.loss_sum / std::max(results.tokens, 1.0);
  bar_.reset();
  // The optimizer left everything as it was after the last good iteration, and so did the steps
  // behind.
  const std::string kept = save_before_leaving();
  throw Left(str_cat("iteration ", state_.iteration + 1, ": the loss is ", loss,
                     " and the gradient norm ", results.grad_norm,
                     "; weights were left as they were after iteration ", state_.iteration, "; ",
                     kept,
                     "\n  hint: a lower --lr, a longer --lr-warmup-iters, or "
                     "--no-check-for-nan-in-loss-and-grad to go on regardless"));
}

bool Trainer::out_of_time() const {
  const double minutes = std::chrono::duration<double>(Clock::now() - start_).count() / 60;
  return config_.exit_duration_in_mins && minutes > double(*config_.exit_duration_in_mins);
}

double Trainer::stop_vote() const {
  return (caught() != 0 ? kSignalVote : 0) + (out_of_time() ? kTimeVote : 0);
}

std::optional<RunEnd> Trainer::time_to_stop() {
  const double votes = alone() ? stop_vote() : stop_votes_;
  if (votes >= kSignalVote) {
    terminal_.print(
        str_cat("caught ", caught() != 0 ? StopSignals::name(caught()) : "a signal on another rank",
                " at iteration ", enqueued_,
                saves() ? ": saving and stopping" : ": stopping (no --save, so nothing is kept)"));
    return RunEnd::stopped_by_signal;
  }
  const bool at_interval = config_.exit_interval && enqueued_ % *config_.exit_interval == 0;
  if ((votes == 0 && !at_interval) || enqueued_ >= iterations_) return std::nullopt;
  terminal_.print(str_cat("stopping at iteration ", enqueued_,
                          votes > 0 ? ": --exit-duration-in-mins is over" : ": --exit-interval"));
  return RunEnd::stopped_early;
}

}  // namespace phx
