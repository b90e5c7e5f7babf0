// What the loop tells: lines of the log, the progress bar, side outputs, memory, warnings, and the
// losses of evaluations.
#include <algorithm>
#include <cmath>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/log.h"
#include "phalanx/kernels/attention_use.h"
#include "phalanx/kernels/gemm_tuning.h"
#include "phalanx/report/log_line.h"
#include "phalanx/report/memory_table.h"
#include "phalanx/train/trainer.h"

namespace phx {

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

double Trainer::measured_seconds() {
  return std::chrono::duration<double>(Clock::now() - interval_start_).count();
}

double Trainer::samples_per_second() { return double(interval_samples_) / measured_seconds(); }

// The state after the last collected iteration; rates are means since the last line of the log.
IterationReport Trainer::make_report() {
  const double measured = measured_seconds();
  const double seconds = measured / double(std::max<int64_t>(interval_all_, 1));
  const TransformerConfig& model = session_.config.model;
  const double flops_per_second =
      training_flops(flops_shape(model), interval_samples_ * model.seq_length,
                     interval_squared_lengths_) /
      measured;
  IterationReport report{
      .iteration = state_.iteration,
      .train_iterations = iterations_,
      .consumed_samples = state_.consumed_samples,
      .milliseconds = seconds * 1e3,
      .tflops_per_gpu = flops_per_second / 1e12 / session_.mesh.size(),
      .learning_rate = learning_rate(session_.config.optim, lengths_, state_.scheduled_samples,
                                     session_.config.catalogue.lr_schedules),
      .global_batch_size = last_batch_,
      .loss_scale = scaler_.scale(),
      .grad_norm = last_grad_norm_,
      .tokens_per_second = double(interval_samples_ * model.seq_length) / measured};
  if (session_.config.optim.decoupled_lr) {
    report.decoupled_learning_rate =
        decoupled_learning_rate(session_.config.optim, lengths_, state_.scheduled_samples,
                                session_.config.catalogue.lr_schedules);
  }
  if (peak_flops_) report.mfu = flops_per_second / (*peak_flops_ * session_.mesh.size());
  return report;
}

// What a step counted beside its loss stays on the device until a line is due: then ranks add it
// up, and wait.
void Trainer::look_at_tallies() {
  tallies_at_ = enqueued_;
  losses_ahead_ = session_.step.losses_ahead();
  const std::vector<double> tally = session_.step.router_tally();
  if (!tally.empty()) routers_ = router_reports(session_.config.model, tally);
}

void Trainer::add_tallies(IterationReport& report) const {
  if (report.iteration != tallies_at_) return;
  for (size_t k = 0; k < losses_ahead_.size(); ++k)
    report.losses.emplace_back(str_cat("mtp_", k + 1, " loss"), losses_ahead_[k]);
  if (!routers_ || routers_->layers.empty()) return;
  report.routers = routers_->all;
  if (session_.config.model.moe.moe_per_layer_logging) report.router_layers = routers_->layers;
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
  add_tallies(report);
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

}  // namespace phx
