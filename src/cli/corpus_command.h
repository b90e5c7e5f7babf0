// phalanx corpus: writes the story corpus, as text, as tokens, or as JSON lines.
#pragma once

#include <span>
#include <string>

namespace phx {

// `args` without the program and the subcommand. Returns the exit code: 0, or 2 for wrong usage;
// what fails otherwise is thrown.
int run_corpus(std::span<const std::string> args);

}  // namespace phx
