#include "phalanx/cli/tune_command.h"

#include <fmt/format.h>

#include <iostream>

#include "phalanx/base/error.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/run_args.h"
#include "phalanx/cli/train_main.h"
#include "phalanx/cli/usage_error.h"
#include "phalanx/comm/process_environment.h"
#include "phalanx/kernels/gemm_tuning.h"
#include "phalanx/train/session.h"

namespace phx {
namespace {

struct TuneFlags {
  std::string output;

  template <class Field>
  void each(Field&& field) {
    field("output", output, "the table to write, or to add to",
          DefaultIs{"in the user's cache folder, where runs look for it"});
  }
};

void print_help(const OptionSet& own) {
  std::cout << own.help(
                   "phalanx tune [flags of pretrain] [flags]\n\n"
                   "Runs one training step on this GPU, then times the algorithms of cuBLASLt for "
                   "each of its\nproducts under load, and writes the fastest into a table. Runs on "
                   "the same kind of GPU with\nthe same library read it (--gemm-table), so that "
                   "they compute the same way every time.",
                   "  phalanx tune --config llama3-8b.yaml")
            << std::flush;
}

// Every product of a step, with gradients that are overwritten and such that are added to.
void compute_once(const PretrainOptions& options, Runtime& runtime) {
  RunConfig config = run_config(options);
  config.train.global_batch_size = 2 * config.train.micro_batch_size;
  Session session(config, Sources::made_up(config), runtime.device());
  session.train_batches.load(0);
  session.step.run(session.train_batches, {.lr = 1e-6});
  session.step.collect();
  runtime.synchronize();
}

}  // namespace

int run_tune(std::span<const std::string> args, const Catalogue& catalogue) {
  TuneFlags flags;
  OptionSet own;
  own.add("Tune", flags);
  const SplitArgs split = split_args(own, args);
  if (split.help) {
    print_help(own);
    return kExitDone;
  }
  Problems problems = own.parse(split.own).problems;
  const ParseResult run = parse_run(split.pretrain, 1, catalogue);
  problems.insert(problems.end(), run.report.problems.begin(), run.report.problems.end());
  if (!problems.empty()) {
    std::cerr << format_problems(problems);
    return kExitUsage;
  }
  prepare_process({});
  RuntimeOptions device = runtime_options(run.options.train);
  if (device.kind != DeviceKind::cuda)
    throw UsageError("there is nothing to tune on a CPU\n  hint: tune where the GPU is");
  device.gemm_table = "none";
  Runtime runtime(device);
  std::cout << meaningless_flags(Command::tune, split.pretrain, run.report, /*world_is_given=*/true,
                                 catalogue)
            << "device: " << runtime.description() << std::endl;
  compute_once(run.options, runtime);
  const Path table =
      flags.output.empty() ? kernels::default_gemm_table(runtime) : Path(flags.output);
  PHX_CHECK(!table.empty(), "there is no cache folder (HOME is not set): give --output");
  double before = 0, after = 0;
  kernels::tune_gemms(runtime, table, [&](const kernels::TunedGemm& gemm) {
    before += gemm.first_ms;
    after += gemm.best_ms;
    std::cout << fmt::format("{:<46}{:>3} candidates {:>9.4f} -> {:>9.4f} ms {:>7.1f} TFLOP/s\n",
                             gemm.problem, gemm.candidates, gemm.first_ms, gemm.best_ms,
                             gemm.flops / gemm.best_ms / 1e9)
              << std::flush;
  });
  std::cout << fmt::format("{}: one of each takes {:.2f} ms, {:.2f} ms by the library's choice\n",
                           table.string(), after, before);
  return kExitDone;
}

}  // namespace phx
