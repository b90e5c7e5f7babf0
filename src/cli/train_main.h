// From checked options to a trained model.
#pragma once

#include "cli/pretrain_options.h"
#include "core/runtime.h"

namespace phx {

// --device, --threads and --deterministic-mode as a runtime.
RuntimeOptions runtime_options(const TrainConfig& train);

int train_main(const PretrainOptions& options);  // returns an exit code

}  // namespace phx
