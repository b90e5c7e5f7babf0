#include "phalanx/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "phalanx/base/error.h"

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

double wsd_coefficient(WsdDecayStyle style, const ScheduleLengths& lengths, double n) {
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

}  // namespace

double learning_rate(const OptimizerConfig& config, const ScheduleLengths& lengths,
                     int64_t samples) {
  const double most = config.lr.value_or(0.0), least = config.min_lr, n = double(samples);
  if (lengths.warmup > 0 && n <= lengths.warmup)
    return config.lr_warmup_init + (most - config.lr_warmup_init) * n / lengths.warmup;
  if (config.lr_decay_style == LrDecayStyle::constant) return most;
  if (samples > lengths.decay) return least;
  if (config.lr_decay_style == LrDecayStyle::inverse_square_root) {
    const double warmup = std::max(lengths.warmup, 1.0);
    return std::max(least, most * std::sqrt(warmup) / std::sqrt(std::max(n, 1.0)));
  }
  const double ratio = (n - lengths.warmup) / (double(lengths.decay) - lengths.warmup);
  double coefficient = 1.0;
  switch (config.lr_decay_style) {
    case LrDecayStyle::linear:
      coefficient = 1.0 - ratio;
      break;
    case LrDecayStyle::cosine:
      coefficient = half_cosine(ratio);
      break;
    case LrDecayStyle::WSD:
      coefficient = wsd_coefficient(config.lr_wsd_decay_style, lengths, n);
      break;
    default:
      break;
  }
  return least + coefficient * (most - least);
}

double decoupled_learning_rate(const OptimizerConfig& config, const ScheduleLengths& lengths,
                               int64_t samples) {
  OptimizerConfig own = config;
  if (config.decoupled_lr) {
    own.lr = config.decoupled_lr;
    own.min_lr = config.decoupled_min_lr.value_or(config.min_lr);
  }
  return learning_rate(own, lengths, samples);
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
