// phalanx launch: starts the ranks of a run as processes of this machine, and supervises them.
#pragma once

#include <span>
#include <string>

#include "phalanx/train/catalogue.h"

namespace phx {

// `args` without the program and the subcommand: launch's own flags, then the command to run.
// Returns the exit code: 0 if all ranks ended well, 3 if they stopped at a signal after saving,
// else that of the first rank that failed (128 + the signal, if one killed it).
int run_launch(std::span<const std::string> args,
               const Catalogue& catalogue = standard_catalogue());

}  // namespace phx
