// `phalanx convert check`: whether a Hugging Face folder or a checkpoint of Megatron's and a native
// checkpoint are the same model.
#pragma once

#include <span>
#include <string>

#include "phalanx/train/catalogue.h"

namespace phx {

int run_check(std::span<const std::string> args, const Catalogue& catalogue);

}  // namespace phx
