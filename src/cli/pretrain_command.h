// phalanx pretrain: train or evaluate a model.
#pragma once

#include <span>
#include <string>

namespace phx {

int run_pretrain(std::span<const std::string> args);

}  // namespace phx
