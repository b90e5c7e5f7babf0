#include "phalanx/cli/pretrain_command.h"

#include <iostream>
#include <optional>

#include "phalanx/base/error.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/not_in_this_build.h"
#include "phalanx/cli/open_model.h"
#include "phalanx/cli/pretrain_options.h"
#include "phalanx/cli/train_main.h"
#include "phalanx/text/tokenizer.h"

namespace phx {
namespace {

// Where neither the options nor their tokenizer said how many tokens there are, it could not be
// read, which is fine for --check-args: now it says why.
void need_vocabulary(const PretrainOptions& options) {
  if (options.model.vocab_size || options.model.padded_vocab_size) return;
  make_tokenizer(options.data);
  throw_error("the vocabulary's size is not known\n  hint: --vocab-size");
}

// With --use-checkpoint-args.
void check_taken_tokenizer(std::span<const std::string> args, const PretrainOptions& options) {
  if (!options.train.use_checkpoint_args || options.data.mock_data) return;
  const bool opens = options.data.token_file.empty() || !options.model.vocab_size;
  if (!opens) return;
  PretrainOptions given(options.catalogue);
  pretrain_option_set(given).parse(args);
  check_kept_tokenizer(options.train.load, options.data, given.data);
}

// Ranks that no launcher started are threads of this process.
enum class Ranks { threads, processes };

// What needs no run: the exit code after it was printed.
std::optional<int> answer(const ParseResult& result, Ranks ranks) {
  if (result.report.help) {
    std::cout << pretrain_help(result.options.catalogue);
    return kExitDone;
  }
  const bool check_only = result.options.train.check_args;
  const Problems lacking = not_in_this_build(result.options);
  Problems problems = result.report.problems;
  if (!check_only) problems.insert(problems.end(), lacking.begin(), lacking.end());
  if (!check_only && ranks == Ranks::threads) {
    const Problems room =
        room_problems(result.options, result.world,
                      problems.empty() && (result.options.model.vocab_size ||
                                           result.options.model.padded_vocab_size));
    problems.insert(problems.end(), room.begin(), room.end());
  }
  if (!problems.empty()) {
    std::cerr << format_problems(problems);
    return kExitUsage;
  }
  if (!check_only) return std::nullopt;
  std::cout << format_implied(result.report) << format_notes(lacking) << result.options.table();
  return kExitDone;
}

}  // namespace

std::optional<int> answer_pretrain(std::span<const std::string> args, int64_t world,
                                   const Catalogue& catalogue) {
  return answer(parse_pretrain(args, world, RanksFrom::launcher, catalogue), Ranks::processes);
}

std::string save_folder_of(std::span<const std::string> args, int64_t world,
                           const Catalogue& catalogue) {
  const TrainConfig train =
      parse_pretrain(args, world, RanksFrom::launcher, catalogue).options.train;
  return train.skip_train ? "" : train.save;
}

Problems pretrain_problems(std::span<const std::string> args, const Catalogue& catalogue) {
  const ParseResult result = parse_pretrain(args, std::nullopt, RanksFrom::launcher, catalogue);
  if (result.report.help) return {};
  Problems problems = result.report.problems;
  const Problems lacking = not_in_this_build(result.options);
  problems.insert(problems.end(), lacking.begin(), lacking.end());
  return problems;
}

int run_pretrain(std::span<const std::string> args, const Catalogue& catalogue) {
  const std::optional<LaunchEnvironment> launch = launch_environment();
  const ParseResult result =
      parse_pretrain(args, launch ? std::optional<int64_t>(launch->size) : std::nullopt,
                     RanksFrom::launcher, catalogue);
  if (const auto exit_code = answer(result, launch ? Ranks::processes : Ranks::threads))
    return *exit_code;
  std::cout << format_implied(result.report);
  if (!result.note.empty() && (!launch || launch->rank == 0)) std::cout << result.note << "\n";
  check_taken_tokenizer(args, result.options);
  need_vocabulary(result.options);
  return train_main(result.options, launch);
}

}  // namespace phx
