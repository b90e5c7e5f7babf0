// Parses the arguments of a subcommand that has no training options with CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace phx {

// Nothing when the command should go on; else the exit code: 0 after --help, 2 after an error,
// which has been printed.
inline std::optional<int> parse_args(CLI::App& app, std::span<const std::string> args) {
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // as CLI11 wants them
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return 0;
  } catch (const CLI::ParseError& error) {
    std::cerr << "error: " << error.what() << "\n  hint: " << app.get_name() << " --help\n";
    return 2;
  }
  return std::nullopt;
}

}  // namespace phx
