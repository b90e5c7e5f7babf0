#include "cli/pretrain_command.h"

#include <iostream>

#include "cli/exit_codes.h"
#include "cli/pretrain_options.h"
#include "cli/train_main.h"

namespace phx {

int run_pretrain(std::span<const std::string> args) {
  const ParseResult result = parse_pretrain(args);
  if (result.report.help) {
    std::cout << pretrain_help();
    return kExitDone;
  }
  if (!result.report.ok()) {
    std::cerr << format_problems(result.report.problems);
    return kExitUsage;
  }
  std::cout << format_implied(result.report);
  if (result.options.train.check_args) {
    std::cout << result.options.table();
    return kExitDone;
  }
  return train_main(result.options);
}

}  // namespace phx
