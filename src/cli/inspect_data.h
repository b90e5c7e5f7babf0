// phalanx inspect data PREFIX: what a pair of token files holds, and samples as training sees them.
#pragma once

#include <span>
#include <string>

namespace phx {

// `args` without the words before PREFIX. Returns the exit code.
int run_inspect_data(std::span<const std::string> args);

}  // namespace phx
