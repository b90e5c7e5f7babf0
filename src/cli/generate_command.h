// `phalanx generate`: text from a checkpoint.
#pragma once

#include <span>
#include <string>

namespace phx {

int run_generate(std::span<const std::string> args);  // returns an exit code

}  // namespace phx
