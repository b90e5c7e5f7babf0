// phalanx plan: what a run will hold, compute and send on any number of ranks, without running it.
#pragma once

#include <span>
#include <string>

#include "phalanx/train/catalogue.h"

namespace phx {

// `args` without the program and the subcommand: the flags of pretrain and a few of its own.
// Returns the exit code: 0 if the run fits its GPUs, 1 if it does not, 2 for wrong usage.
int run_plan(std::span<const std::string> args, const Catalogue& catalogue = standard_catalogue());

}  // namespace phx
