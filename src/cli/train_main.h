// From checked options to a trained model.
#pragma once

#include <optional>

#include "cli/pretrain_options.h"
#include "comm/launch_environment.h"
#include "core/runtime.h"

namespace phx {

// --device, --threads and --deterministic-mode as a runtime.
RuntimeOptions runtime_options(const TrainConfig& train);

// `launch`: who started this process as one of several ranks, if anybody did. Returns an exit code.
int train_main(const PretrainOptions& options, const std::optional<LaunchEnvironment>& launch);

}  // namespace phx
