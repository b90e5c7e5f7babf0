// From checked options to a trained model.
#pragma once

#include "cli/pretrain_options.h"

namespace phx {

int train_main(const PretrainOptions& options);  // returns an exit code

}  // namespace phx
