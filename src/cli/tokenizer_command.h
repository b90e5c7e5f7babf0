// phalanx tokenizer: encode, decode and show a tokenizer, or train one.
#pragma once

#include <span>
#include <string>

namespace phx {

// `args` without the program and the subcommand; the first one says what to do. Returns the exit
// code: 0, or 2 for wrong usage; what fails otherwise is thrown.
int run_tokenizer(std::span<const std::string> args);

}  // namespace phx
