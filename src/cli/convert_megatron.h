// `phalanx convert import --megatron` and `phalanx convert export --torch-dist` or
// `--fsdp-dtensor`: Megatron's own checkpoints to native ones and back.
#pragma once

#include <span>
#include <string>

#include "phalanx/train/catalogue.h"

namespace phx {

int run_import_megatron(std::span<const std::string> args);
int run_export_megatron(std::span<const std::string> args, const Catalogue& catalogue);

}  // namespace phx
