// phalanx convert import | export | check: Hugging Face folders and native checkpoints.
#pragma once

#include <span>
#include <string>

#include "phalanx/train/catalogue.h"

namespace phx {

int run_convert(std::span<const std::string> args,
                const Catalogue& catalogue = standard_catalogue());

}  // namespace phx
