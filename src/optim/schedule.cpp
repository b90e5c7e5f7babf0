#include "phalanx/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "phalanx/base/error.h"
#include "phalanx/base/named_entry.h"

namespace phx {

ScheduleLengths schedule_lengths(const OptimizerConfig& config, int64_t train_iterations,
                                 const std::function<int64_t(int64_t)>& samples_after,
                                 std::optional<int64_t> train_samples) {
  ScheduleLengths lengths;
  const int64_t decay_iterations = config.lr_decay_iters.value_or(train_iterations);
  lengths.total = train_samples.value_or(samples_after(train_iterations));
  lengths.decay = config.lr_decay_samples.value_or(
      config.lr_decay_iters ? samples_after(decay_iterations) : lengths.total);
  if (config.lr_warmup_fraction) {
    lengths.warmup = *config.lr_warmup_fraction * double(lengths.decay);
  } else {
    lengths.warmup = double(config.lr_warmup_samples > 0 ? config.lr_warmup_samples
                                                         : samples_after(config.lr_warmup_iters));
  }
  if (config.lr_wsd_decay_samples) {
    lengths.wsd_decay = *config.lr_wsd_decay_samples;
  } else if (config.lr_wsd_decay_iters) {  // the last iterations of the decay
    lengths.wsd_decay =
        lengths.decay - samples_after(decay_iterations - *config.lr_wsd_decay_iters);
  }
  PHX_CHECK(lengths.warmup < double(lengths.decay) || lengths.decay == 0, "warm-up of ",
            lengths.warmup, " samples does not end before the decay of ", lengths.decay,
            " samples does\n  hint: a shorter --lr-warmup-iters, or a longer --lr-decay-iters");
  return lengths;
}

namespace {

double half_cosine(double ratio) { return 0.5 * (1.0 + std::cos(std::numbers::pi * ratio)); }

double wsd_coefficient(WsdDecayStyle style, const ScheduleLengths& lengths, int64_t samples) {
  const double n = double(samples);
  const double anneal_start = double(lengths.decay - lengths.wsd_decay);
  if (n <= anneal_start) return 1.0;
  const double t = (n - anneal_start) / double(lengths.wsd_decay);
  switch (style) {
    case WsdDecayStyle::linear:
      return 1.0 - t;
    case WsdDecayStyle::cosine:
      return half_cosine(t);
    case WsdDecayStyle::exponential:
      return 2.0 * std::pow(0.5, t) - 1.0;
    case WsdDecayStyle::minus_sqrt:
      return 1.0 - std::sqrt(t);
  }
  return 1.0;
}

// A curve that has fallen to the floor when the decay ends.
template <class Curve>
auto until_the_floor(Curve curve) {
  return [curve](const LrPoint& point, const OwnOptions&) {
    return point.samples > point.lengths.decay ? point.least : curve(point);
  };
}

double between(const LrPoint& point, double share) {
  return point.least + share * (point.most - point.least);
}

double inverse_square_root(const LrPoint& point) {
  const double warmup = std::max(point.lengths.warmup, 1.0);
  const double n = std::max(double(point.samples), 1.0);
  return std::max(point.least, point.most * std::sqrt(warmup) / std::sqrt(n));
}

}  // namespace

double LrPoint::progress() const {
  return (double(samples) - lengths.warmup) / (double(lengths.decay) - lengths.warmup);
}

std::vector<LrSchedule> standard_lr_schedules() {
  return {
      {"constant", "stays at its peak",
       [](const LrPoint& point, const OwnOptions&) { return point.most; }},
      {"linear", "falls in a straight line",
       until_the_floor([](const LrPoint& p) { return between(p, 1.0 - p.progress()); })},
      {"cosine", "falls along half a cosine",
       until_the_floor([](const LrPoint& p) { return between(p, half_cosine(p.progress())); })},
      {"inverse-square-root", "falls with the root of the samples",
       until_the_floor(inverse_square_root)},
      {"WSD", "stays, then falls at the end", until_the_floor([](const LrPoint& p) {
         return between(p, wsd_coefficient(p.config.lr_wsd_decay_style, p.lengths, p.samples));
       })},
  };
}

namespace {

double rate_between(double most, double least, const OptimizerConfig& config,
                    const ScheduleLengths& lengths, int64_t samples,
                    const std::vector<LrSchedule>& schedules) {
  const double n = double(samples);
  if (lengths.warmup > 0 && n <= lengths.warmup)
    return config.lr_warmup_init + (most - config.lr_warmup_init) * n / lengths.warmup;
  const LrSchedule& schedule = entry_of(schedules, config.lr_decay_style, "--lr-decay-style");
  return schedule.rate(
      {.config = config, .lengths = lengths, .samples = samples, .most = most, .least = least},
      schedule.options);
}

}  // namespace

double learning_rate(const OptimizerConfig& config, const ScheduleLengths& lengths, int64_t samples,
                     const std::vector<LrSchedule>& schedules) {
  return rate_between(config.lr.value_or(0.0), config.min_lr, config, lengths, samples, schedules);
}

double decoupled_learning_rate(const OptimizerConfig& config, const ScheduleLengths& lengths,
                               int64_t samples, const std::vector<LrSchedule>& schedules) {
  if (!config.decoupled_lr) return learning_rate(config, lengths, samples, schedules);
  return rate_between(*config.decoupled_lr, config.decoupled_min_lr.value_or(config.min_lr), config,
                      lengths, samples, schedules);
}

double weight_decay(const OptimizerConfig& config, const ScheduleLengths& lengths,
                    int64_t samples) {
  const double start = config.first_weight_decay(), end = config.last_weight_decay();
  if (config.weight_decay_incr_style == WeightDecayStyle::constant) return end;
  if (samples >= lengths.total) return end;
  const double ratio = double(samples) / double(lengths.total);
  const double share = config.weight_decay_incr_style == WeightDecayStyle::linear
                           ? ratio
                           : 0.5 * (std::cos(std::numbers::pi * (1.0 - ratio)) + 1.0);
  return start + share * (end - start);
}

}  // namespace phx
