// The counters of a run, and the way of a session into a checkpoint and back.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/file.h"
#include "optim/loss_scaler.h"
#include "train/session.h"

namespace phx {

struct RunState {
  int64_t iteration = 0;          // done
  int64_t consumed_samples = 0;   // of training, skipped iterations included
  int64_t scheduled_samples = 0;  // of successful steps: what schedules count
  int64_t updates = 0;            // successful optimizer steps: Adam's step count
  int64_t consumed_valid_samples = 0;
  int64_t skipped_iterations = 0;
  LossScaler::State scaler{1.0, 0, 0};

  std::string to_json() const;
  static RunState from_json(const std::string& text);
  static RunState read(const nlohmann::json& values);
};

void save_session(const Path& folder, const Session& session, const RunState& state);

// Loads what the train config asks for (--load, --ckpt-step, --finetune, --no-load-optim). Nothing
// if there is no checkpoint to load and none is demanded.
struct Loaded {
  std::optional<RunState> state;  // none: only weights were taken, the run begins at iteration 0
  Path file;
};
std::optional<Loaded> load_session(Session& session);

}  // namespace phx
