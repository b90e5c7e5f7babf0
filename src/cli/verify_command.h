// `phalanx verify`: proves on CPU ranks that the user's layout computes what one rank computes.
#pragma once

#include <span>
#include <string>

#include "phalanx/train/catalogue.h"

namespace phx {

// Exit codes: 0 proved, 1 something differs, 2 wrong usage.
int run_verify(std::span<const std::string> args,
               const Catalogue& catalogue = standard_catalogue());

}  // namespace phx
