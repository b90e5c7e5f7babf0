// phalanx pretrain: train or evaluate a model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "phalanx/base/problem.h"
#include "phalanx/train/catalogue.h"

namespace phx {

int run_pretrain(std::span<const std::string> args,
                 const Catalogue& catalogue = standard_catalogue());

// What a launcher can say once instead of all its `world` ranks: help, wrong usage, --check-args.
// Prints it and returns the exit code; nothing if the ranks should start.
std::optional<int> answer_pretrain(std::span<const std::string> args, int64_t world,
                                   const Catalogue& catalogue);

// The folder that a command without problems saves into; empty if it saves nothing.
std::string save_folder_of(std::span<const std::string> args, int64_t world,
                           const Catalogue& catalogue);

// What is wrong with a command whose number of ranks is not known, because what should say it is
// wrong itself.
Problems pretrain_problems(std::span<const std::string> args, const Catalogue& catalogue);

}  // namespace phx
