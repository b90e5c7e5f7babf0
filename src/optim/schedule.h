// Learning rate and weight decay over a run, as pure functions of the samples consumed by
// successful steps (Megatron counts schedules in samples).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/own_options.h"
#include "phalanx/optim/optimizer_config.h"

namespace phx {

struct ScheduleLengths {  // in samples
  double warmup = 0;      // a fraction of the decay need not be whole
  int64_t decay = 0;      // until the minimum, warm-up included
  int64_t wsd_decay = 0;  // the final fall of WSD
  int64_t total = 0;      // of the run; weight decay ends there
};

// From iterations or samples, as the flags give them. `samples_after` returns how many samples the
// first n iterations consume: n times the global batch, if that does not change. A run whose length
// is given in samples (--train-samples) decays over all of them, an incomplete last batch included.
ScheduleLengths schedule_lengths(const OptimizerConfig& config, int64_t train_iterations,
                                 const std::function<int64_t(int64_t)>& samples_after,
                                 std::optional<int64_t> train_samples = std::nullopt);

// Where a run stands when its learning rate is asked for.
struct LrPoint {
  const OptimizerConfig& config;
  const ScheduleLengths& lengths;
  int64_t samples = 0;             // consumed by successful steps; past the warm-up
  double most = 0.0, least = 0.0;  // --lr and --min-lr, or the decoupled ones

  // 0 at the end of warm-up, 1 at the end of the decay; more after it.
  double progress() const;
};

// What --lr-decay-style NAME means: the learning rate after warm-up, as a pure function.
struct LrSchedule {
  std::string name, help;
  std::function<double(const LrPoint& point, const OwnOptions& options)> rate;
  OwnOptions options = {};
};
std::vector<LrSchedule> standard_lr_schedules();  // Megatron's

// During warm-up a straight line, then the schedule of config.lr_decay_style, one of
// `schedules`.
double learning_rate(const OptimizerConfig& config, const ScheduleLengths& lengths, int64_t samples,
                     const std::vector<LrSchedule>& schedules = standard_lr_schedules());
// The rate of the word embedding and the output layer: the same curve between --decoupled-lr and
// --decoupled-min-lr, if given.
double decoupled_learning_rate(const OptimizerConfig& config, const ScheduleLengths& lengths,
                               int64_t samples,
                               const std::vector<LrSchedule>& schedules = standard_lr_schedules());
double weight_decay(const OptimizerConfig& config, const ScheduleLengths& lengths, int64_t samples);

}  // namespace phx
