// `phalanx generate`: text from a checkpoint.
#pragma once

#include <span>
#include <string>

#include "phalanx/train/catalogue.h"

namespace phx {

int run_generate(std::span<const std::string> args,
                 const Catalogue& catalogue = standard_catalogue());  // returns an exit code

}  // namespace phx
