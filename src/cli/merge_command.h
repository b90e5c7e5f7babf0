// phalanx merge: several .bin/.idx pairs to one.
#pragma once

#include <span>
#include <string>

namespace phx {

// `args` without the program and the subcommand. Returns the exit code: 0, or 2 for wrong usage;
// what fails otherwise is thrown.
int run_merge(std::span<const std::string> args);

}  // namespace phx
