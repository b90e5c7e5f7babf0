// phalanx convert import | export | check: Hugging Face folders and native checkpoints.
#pragma once

#include <span>
#include <string>

namespace phx {

int run_convert(std::span<const std::string> args);

}  // namespace phx
