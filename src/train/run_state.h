// The counters of a run: what a checkpoint says beside tensors and options.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "phalanx/optim/loss_scaler.h"

namespace phx {

struct RunState {
  int64_t iteration = 0;          // done
  int64_t consumed_samples = 0;   // of training, skipped iterations included
  int64_t scheduled_samples = 0;  // of successful steps: what schedules count
  int64_t updates = 0;            // successful optimizer steps: Adam's step count
  int64_t consumed_valid_samples = 0;
  int64_t skipped_iterations = 0;
  std::optional<LossScaler::State> scaler;  // of a dynamic loss scale

  std::string to_json() const;
  static RunState from_json(const std::string& text);
  static RunState read(const nlohmann::json& values);
};

}  // namespace phx
