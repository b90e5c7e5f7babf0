// The subcommands of `phalanx`.
#pragma once

#include <span>
#include <string>

namespace phx {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(std::span<const std::string> args);  // args after the command's name
};

std::span<const Command> commands();

// Runs what the arguments after the program's name ask for; prints errors; returns an exit code.
int run_phalanx(std::span<const std::string> args);

}  // namespace phx
