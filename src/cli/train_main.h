// From checked options to a trained model.
#pragma once

#include "cli/pretrain_options.h"
#include "core/runtime.h"
#include "train/session.h"

namespace phx {

// --device, --threads and --deterministic-mode as a runtime.
RuntimeOptions runtime_options(const TrainConfig& train);

RunConfig run_config(const PretrainOptions& options);

int train_main(const PretrainOptions& options);  // returns an exit code

}  // namespace phx
