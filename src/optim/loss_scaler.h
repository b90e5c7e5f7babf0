// The factor on the loss in fp16. Dynamic: halved when gradients overflow often enough, doubled
// after a window of clean steps. The trackers behave as Megatron's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "phalanx/optim/optimizer_config.h"

namespace phx {

class LossScaler {
 public:
  LossScaler(const OptimizerConfig& config, bool fp16)
      : dynamic_(fp16 && config.dynamic_loss_scale()),
        scale_(!fp16 ? 1.0 : config.loss_scale.value_or(config.initial_loss_scale)),
        min_scale_(config.min_loss_scale),
        window_(config.loss_scale_window),
        hysteresis_(config.hysteresis),
        hysteresis_left_(config.hysteresis) {}

  double scale() const { return scale_; }
  bool at_minimum() const { return scale_ <= min_scale_; }
  bool dynamic() const { return dynamic_; }

  void update(bool overflow) {
    if (!dynamic_) return;
    if (overflow) {
      growth_ = 0;
      if (--hysteresis_left_ <= 0) scale_ = std::max(scale_ * 0.5, min_scale_);
      return;
    }
    if (++growth_ < window_) return;
    growth_ = 0;
    hysteresis_left_ = hysteresis_;
    scale_ *= 2.0;
  }

  struct State {
    double scale;
    int64_t growth, hysteresis_left;
  };
  // Nothing where the scale is fixed: a run that goes on from there follows its own flags.
  std::optional<State> state() const {
    if (!dynamic_) return std::nullopt;
    return State{scale_, growth_, hysteresis_left_};
  }
  void restore(const State& state) {
    if (!dynamic_) return;  // a fixed factor is the flag's, whatever a checkpoint says
    scale_ = state.scale;
    growth_ = state.growth;
    hysteresis_left_ = state.hysteresis_left;
  }

 private:
  bool dynamic_;
  double scale_, min_scale_;
  int64_t window_, hysteresis_, hysteresis_left_;
  int64_t growth_ = 0;
};

}  // namespace phx
