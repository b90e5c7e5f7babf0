// From checked options to a trained model.
#pragma once

#include <optional>

#include "phalanx/cli/pretrain_options.h"
#include "phalanx/comm/launch_environment.h"
#include "phalanx/core/runtime.h"
#include "phalanx/train/session.h"

namespace phx {

// --device, --threads and --deterministic-mode as a runtime.
RuntimeOptions runtime_options(const TrainConfig& train);

RunConfig run_config(const PretrainOptions& options);

// `launch`: who started this process as one of several ranks, if anybody did. Returns an exit code.
int train_main(const PretrainOptions& options, const std::optional<LaunchEnvironment>& launch);

}  // namespace phx
