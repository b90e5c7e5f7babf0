// From checked options to a trained model.
#pragma once

#include <optional>

#include "cli/pretrain_options.h"
#include "comm/launch_environment.h"
#include "core/runtime.h"
#include "train/session.h"

namespace phx {

// --device, --threads and --deterministic-mode as a runtime.
RuntimeOptions runtime_options(const TrainConfig& train);

RunConfig run_config(const PretrainOptions& options);

// `launch`: who started this process as one of several ranks, if anybody did. Returns an exit code.
int train_main(const PretrainOptions& options, const std::optional<LaunchEnvironment>& launch);

}  // namespace phx
