#include "cli/pretrain_command.h"

#include <iostream>
#include <optional>

#include "cli/exit_codes.h"
#include "cli/not_in_this_build.h"
#include "cli/pretrain_options.h"
#include "cli/train_main.h"
#include "data/tokenizer.h"

namespace phx {
namespace {

// Where the options do not say how many tokens there are, the tokenizer does. Not asked by
// --check-args, which opens no files.
void take_vocabulary(PretrainOptions& options) {
  const std::string& type = options.data.tokenizer_type;
  if (options.model.vocab_size || type.empty() || type == "NullTokenizer") return;
  options.model.vocab_size = make_tokenizer(options.data)->vocab_size();
  options.model.resolve(options.parallel.tensor_model_parallel_size);
}

}  // namespace

int run_pretrain(std::span<const std::string> args) {
  const std::optional<LaunchEnvironment> launch = launch_environment();
  ParseResult result =
      parse_pretrain(args, launch ? std::optional<int64_t>(launch->size) : std::nullopt);
  if (result.report.help) {
    std::cout << pretrain_help();
    return kExitDone;
  }
  const bool check_only = result.options.train.check_args;
  const Problems lacking = not_in_this_build(result.options);
  Problems problems = result.report.problems;
  if (!check_only) problems.insert(problems.end(), lacking.begin(), lacking.end());
  if (!problems.empty()) {
    std::cerr << format_problems(problems);
    return kExitUsage;
  }
  std::cout << format_implied(result.report);
  if (check_only) {
    std::cout << format_notes(lacking) << result.options.table();
    return kExitDone;
  }
  take_vocabulary(result.options);
  return train_main(result.options, launch);
}

}  // namespace phx
