#include "phalanx/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/log.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/folder_lock.h"
#include "phalanx/comm/machine_limits.h"
#include "phalanx/kernels/attention_use.h"
#include "phalanx/kernels/gemm_tuning.h"
#include "phalanx/report/log_line.h"
#include "phalanx/report/memory_table.h"
#include "phalanx/train/save_buffer.h"

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

void Trainer::open_side_outputs() {
  if (!config_.tensorboard_dir.empty()) {
    const Path folder = config_.tensorboard_dir;
    PHX_CHECK(!std::filesystem::exists(folder) || std::filesystem::is_directory(folder),
              "--tensorboard-dir ", folder.native(), " is a file, but events go into a folder",
              "\n  hint: give another name");
    const auto open = [folder] { return std::make_unique<TensorBoardWriter>(folder); };
    tensorboard_.emplace("--tensorboard-dir " + folder.native(), open, open);
  }
  if (!config_.metrics_file.empty() && !config_.skip_train) {
    const Path path = config_.metrics_file;
    check_metrics_path(path);
    metrics_.emplace(
        "--metrics-file " + path.native(),
        [&] { return std::make_unique<MetricsFile>(path, state_.iteration); },
        [path] { return std::make_unique<MetricsFile>(path); });
  }
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
// that holds the whole state saves it.
void Trainer::leave_after(const std::exception& error) {
  bar_.reset();
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

namespace {

// Rank 0 holds the lock during the run. The others get it when rank 0 is dead, which the system may
// notice a moment after its connections closed.
std::unique_ptr<FolderLock> lock_of_dead_rank(const Path& folder) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (true) {
    try {
      return std::make_unique<FolderLock>(folder);
    } catch (const std::exception&) {
      if (std::chrono::steady_clock::now() > end) return nullptr;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

}  // namespace

// Not on GPUs: updates that were enqueued behind a failed exchange may have run.
void Trainer::save_own_copy() {
  const bool on_cpu = session_.store.weights().device().kind() == DeviceKind::cpu;
  if (!saves() || last_good_ == 0 || !on_cpu || session_.step.pending() > 0 ||
      !holds_whole_state(session_))
    return;
  try {
    saver_.reset();  // a save that waits for other ranks is given up
    std::unique_ptr<FolderLock> lock;
    if (!speaks() || !folder_is_locked_) {
      lock = lock_of_dead_rank(config_.save);
      if (!lock) return;
    }
    // Another copy may have saved, and may have been one update ahead when the error came.
    const int64_t latest = latest_checkpoint(config_.save).value_or(0);
    if (latest == state_.iteration || latest == state_.iteration + 1) return;
    CheckpointSaver saver(saver_options(/*world=*/nullptr));
    saver.begin(state_.iteration, boxes_to_save(session_, SavedBy::this_rank),
                info_to_save(session_, state_));
    saver.wait();
    log_warning(str_cat("the last good state is iteration ", state_.iteration, ", saved in ",
                        checkpoint_path(config_.save, state_.iteration).string(), " by rank ",
                        session_.mesh.rank(), ", which holds all of it"));
  } catch (const std::exception& second) {
    log_warning(str_cat("the state of iteration ", state_.iteration,
                        " could not be saved: ", second.what()));
  }
}

RunEnd Trainer::train() {
  start_ = Clock::now();
  if (saves() && !config_.skip_train) make_saver();
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
  session_.step.run(
      session_.train_batches,
      {.iteration = enqueued_ + 1,
       .update = state_.updates + under_way + 1,
       .lr = learning_rate(session_.config.optim, lengths_, scheduled),
       .decoupled_lr = decoupled_learning_rate(session_.config.optim, lengths_, scheduled),
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

double Trainer::measured_seconds() {
  return std::chrono::duration<double>(Clock::now() - interval_start_).count();
}

double Trainer::samples_per_second() { return double(interval_samples_) / measured_seconds(); }

// The state after the last collected iteration; rates are means since the last line of the log.
IterationReport Trainer::make_report() {
  const double seconds = measured_seconds() / double(std::max<int64_t>(interval_all_, 1));
  const TransformerConfig& model = session_.config.model;
  const double flops_per_second =
      training_flops(flops_shape(model), interval_samples_ * model.seq_length,
                     interval_squared_lengths_) /
      measured_seconds();
  IterationReport report{
      .iteration = state_.iteration,
      .train_iterations = iterations_,
      .consumed_samples = state_.consumed_samples,
      .milliseconds = seconds * 1e3,
      .tflops_per_gpu = flops_per_second / 1e12 / session_.mesh.size(),
      .learning_rate = learning_rate(session_.config.optim, lengths_, state_.scheduled_samples),
      .global_batch_size = last_batch_,
      .loss_scale = scaler_.scale(),
      .grad_norm = last_grad_norm_,
      .tokens_per_second = samples_per_second() * double(session_.config.model.seq_length)};
  if (session_.config.optim.decoupled_lr) {
    report.decoupled_learning_rate =
        decoupled_learning_rate(session_.config.optim, lengths_, state_.scheduled_samples);
  }
  if (peak_flops_) report.mfu = flops_per_second / (*peak_flops_ * session_.mesh.size());
  return report;
}

void Trainer::update_bar() {
  if (interval_all_ > 0)
    tokens_per_second_ = samples_per_second() * double(session_.config.model.seq_length);
  bar_->update(
      {.iteration = state_.iteration, .loss = last_loss_, .tokens_per_second = tokens_per_second_});
}

void Trainer::report() {
  IterationReport report = make_report();
  if (interval_good_ > 0) report.losses = {{"lm loss", interval_loss_ / double(interval_good_)}};
  report.skipped_iterations = interval_skipped_;
  report.nan_iterations = interval_nan_;
  terminal_.print(log_line(report, time_stamp(std::chrono::system_clock::now())));
  interval_loss_ = 0;
  interval_good_ = interval_all_ = interval_skipped_ = interval_nan_ = 0;
  interval_samples_ = interval_squared_lengths_ = 0;
  interval_start_ = Clock::now();
}

void Trainer::say_memory() {
  Runtime& runtime = session_.store.weights().runtime();
  terminal_.print(memory_table(runtime.allocator().report()));
  const std::string host = host_memory_line(host_memory(runtime), format_bytes);
  if (!host.empty()) terminal_.print("  " + host);
}

void Trainer::say_kernels() {
  if (!speaks()) return;
  Runtime& runtime = session_.store.weights().runtime();
  for (const auto& line : runtime.extension<kernels::AttentionUse>().lines()) {
    if (line.slow)
      log_warning(line.text);
    else
      terminal_.print(line.text);
  }
  if (const auto tuning = kernels::gemm_tuning(runtime))
    terminal_.print(kernels::gemm_tuning_line(*tuning));
}

void Trainer::say_divergence() {
  Allocator& allocator = session_.store.weights().runtime().allocator();
  for (const std::string& warning : allocator.take_warnings())
    if (speaks()) log_warning(str_cat("memory: ", warning));
}

void Trainer::validate(std::optional<BatchLoader>& batches, const std::string& where) {
  if (!batches || config_.eval_iters == 0) {
    log_warning(batches
                    ? "--eval-iters is 0: nothing is evaluated"
                    : "there is no validation data (--split leaves none): nothing is evaluated");
    return;
  }
  const auto start = Clock::now();
  const bool test = where == "on test set";
  // Data that is there to be evaluated only is made for one evaluation, as in Megatron.
  const int64_t first = test || config_.skip_train ? 0 : state_.consumed_valid_samples;
  const std::optional<double> loss =
      session_.step.evaluate(*batches, first, config_.eval_iters, [&] { return caught() != 0; });
  if (!loss) return;  // a signal: there is no time for the rest
  if (!test) state_.consumed_valid_samples += config_.eval_iters * batches->shape().samples();
  const ValidationReport report{.iteration = state_.iteration,
                                .consumed_samples = state_.consumed_samples,
                                .losses = {{"lm loss", *loss}},
                                .where = where};
  terminal_.print(validation_block(report));
  // As Megatron: what is only evaluated belongs to no curve.
  if (tensorboard_ && !config_.skip_train) tensorboard_->write(report);
  if (metrics_) metrics_->write(report);
  interval_start_ += Clock::now() - start;  // the evaluation's time is not the iterations'
}

SaverOptions Trainer::saver_options(Communicator* world) const {
  return {.folder = config_.save,
          .world = world,
          .retain_interval = config_.save_retain_interval,
          .verify = config_.save_verify,
          .disk = &disk_};
}

// The memory of asynchronous saves is made while the first steps run.
void Trainer::make_saver() {
  const std::vector<LocalBox> boxes = boxes_to_save(session_);
  int64_t state = 0;
  for (const LocalBox& box : boxes) state += box.bytes();
  SaveBuffer buffer =
      save_buffer(state, machine_limits().memory, ranks_here_,
                  session_.store.weights().device().kind() == DeviceKind::cpu ? ComputesOn::host
                                                                              : ComputesOn::device);
  if (config_.save_buffer_mib) buffer.bytes = *config_.save_buffer_mib << 20;
  SaverOptions options = saver_options(session_.mesh.world());
  options.ring_bytes = buffer.bytes;
  saver_.emplace(options);
  if (!config_.async_save) return;
  terminal_.print(buffer.text());
  saver_->reserve(boxes);
}

void Trainer::save() {
  session_.data_parallel.wait_for_weights();
  finish_save();
  saving_ = true;
  saver_->begin(state_.iteration, boxes_to_save(session_), info_to_save(session_, state_),
                config_.async_save ? SaveMode::background : SaveMode::waiting);
  last_saved_ = state_.iteration;
  saving_ = false;
  const bool hf = config_.save_hf_interval && state_.iteration % *config_.save_hf_interval == 0;
  if (!config_.async_save || hf) finish_save();
  if (hf) save_hf();
}

// From the files, so that it does not matter which rank holds what.
void Trainer::save_hf() {
  if (!speaks()) return;
  const auto start = Clock::now();
  const Path folder = hf_folder_of(config_.save, state_.iteration);
  try {
    export_session(folder, session_.config, state_.iteration);
  } catch (const std::exception& error) {  // the checkpoint is there, and can be exported later
    log_warning(str_cat("--save-hf-interval: ", error.what(),
                        "\n  the run goes on; `phalanx convert ",
                        "export` makes the folder from the checkpoint"));
    return;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  terminal_.print(str_cat("wrote ", folder.string(), " in ", format_duration(seconds)));
}

void Trainer::finish_save() {
  if (!saver_) return;
  saving_ = true;
  say_saved(saver_->wait());
  saving_ = false;
}

void Trainer::say_saved(const std::optional<SaveReport>& report) {
  if (!report) return;
  const std::string took = format_duration(report->seconds);
  terminal_.print(str_cat("saved ", report->path.string(), ": ", format_bytes(report->bytes),
                          " a rank in ", took,
                          config_.async_save ? str_cat(" in the background; the loop stalled for ",
                                                       format_duration(report->stall_seconds))
                                             : ""));
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
