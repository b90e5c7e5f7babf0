// Parses the arguments of a subcommand that has no training options, with the registry that
// `pretrain` has: all problems are told at once, and --help is written from the same list.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "phalanx/base/options.h"

namespace phx {

struct CommandHelp {
  const char* usage;    // "phalanx plot --metrics FILE ... --output FILE"
  const char* about;    // a sentence
  const char* example;  // a line to copy
};

// Nothing when the command should go on; else the exit code: 0 after --help, 2 after problems,
// which have been printed.
std::optional<int> parse_args(OptionSet& options, std::span<const Rule> rules,
                              const CommandHelp& help, std::span<const std::string> args);

}  // namespace phx
