// The subcommands of `phalanx`.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "phalanx/train/catalogue.h"

namespace phx {

struct Command {
  const char* name;
  const char* summary;
  // args after the command's name
  std::function<int(std::span<const std::string> args, const Catalogue& catalogue)> run;
};

std::span<const Command> commands();

// Runs what the arguments after the program's name ask for; prints errors; returns an exit code.
int run_phalanx(std::span<const std::string> args,
                const Catalogue& catalogue = standard_catalogue());

// The whole program with the entries of a catalogue: your own program's main calls it.
int main(int argc, char** argv, const Catalogue& catalogue = standard_catalogue());

}  // namespace phx
