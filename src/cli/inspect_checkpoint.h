// `phalanx inspect checkpoint DIR`: what is in a checkpoint, whether it is whole, and what is
// different between two.
#pragma once

#include <span>
#include <string>

namespace phx {

int run_inspect_checkpoint(std::span<const std::string> args);

}  // namespace phx
