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

// Ranks as threads of this process that do not fit into the machine. With `counts_state` what a
// rank holds of the model is weighed too, which needs options without problems.
// Bytes that all ranks hold at the least: weights, gradients and the optimizer's states of every
// copy of the model, what is sharded once.
int64_t least_bytes(const PretrainOptions& options, int world);

Problems room_problems(const PretrainOptions& options, int64_t ranks, bool counts_state);

// `launch`: who started this process as one of several ranks, if anybody did. Returns an exit code.
int train_main(const PretrainOptions& options, const std::optional<LaunchEnvironment>& launch);

}  // namespace phx
