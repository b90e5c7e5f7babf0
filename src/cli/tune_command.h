// phalanx tune: the fastest algorithms for the products of a run, timed on this GPU.
#pragma once

#include <span>
#include <string>

#include "phalanx/train/catalogue.h"

namespace phx {

// `args` without the program and the subcommand: the flags of pretrain and a few of its own.
int run_tune(std::span<const std::string> args, const Catalogue& catalogue = standard_catalogue());

}  // namespace phx
