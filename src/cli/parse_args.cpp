#include "phalanx/cli/parse_args.h"

#include <iostream>

#include "phalanx/base/error.h"
#include "phalanx/cli/exit_codes.h"

namespace phx {

std::optional<int> parse_args(OptionSet& options, std::span<const Rule> rules,
                              const CommandHelp& help, std::span<const std::string> args) {
  ParseReport report = options.parse(args);
  if (report.help) {
    std::cout << options.help(str_cat(help.usage, "\n\n", help.about), str_cat("  ", help.example))
              << std::flush;
    return kExitDone;
  }
  options.check(rules, report);
  if (report.ok()) return std::nullopt;
  std::cerr << format_problems(report.problems);
  return kExitUsage;
}

}  // namespace phx
