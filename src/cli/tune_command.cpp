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
#include "phalanx/plan/run_plan.h"

namespace phx {
namespace {

struct TuneFlags {
  std::string output;
  std::optional<int64_t> world_size;
  bool only_new = false;
  bool list = false;

  template <class Field>
  void each(Field&& field) {
    field("output", output, "the table to write, or to add to",
          DefaultIs{"in the user's cache folder, where runs look for it"});
    field("world-size", world_size, "ranks of the run; one GPU tunes for all of them", Positive{},
          DefaultIs{"one copy of the model: TP x PP x CP"});
    field("only-new", only_new, "time only products that the table does not have yet");
    field("list", list, "print the products, and time none");
  }
};

void print_help(const OptionSet& own) {
  std::cout << own.help(
                   "phalanx tune [flags of pretrain] [flags]\n\n"
                   "Plans the training step of every kind of rank, then times the algorithms of "
                   "cuBLASLt for each of\nits products on this GPU under load, and writes the "
                   "fastest into a table. Runs on the same kind\nof GPU with the same library read "
                   "it (--gemm-table), so that they compute the same way every\ntime. The program "
                   "brings tables for some GPUs; a run says after its first step what is tuned.",
                   "  phalanx tune --config llama3-8b.yaml\n"
                   "  phalanx tune --config llama3-70b.yaml --tensor-model-parallel-size 8 --list")
            << std::flush;
}

// Every product of a step, of the first rank of each stage: the other ranks compute the same ones.
std::set<kernels::GemmProblem> products_of(RunConfig config, int world) {
  std::set<kernels::GemmProblem> products;
  // Two micro-batches a rank have all products of many, unless a pipeline wants more.
  const Layout layout = make_layout(config.layout(), world);
  if (layout.mesh.sizes.pp == 1)
    config.train.global_batch_size =
        2 * config.train.micro_batch_size * data_parallel_size(config.parallel, world);
  for (const RankPlan& stage : plan_run(config, world, {.target = DeviceKind::cuda}).stages)
    products.insert(stage.products.begin(), stage.products.end());
  return products;
}

std::string text_of(const kernels::GemmProblem& p) {
  return fmt::format(
      "{}{} x {} x {} {}{} {} to {}{}{}", p.batch > 1 ? fmt::format("{} x ", p.batch) : "", p.m,
      p.n, p.k, p.transpose_a ? "T" : "N", p.transpose_b ? "T" : "N", name(p.operands), name(p.out),
      p.bias ? ", bias" : "", p.activation == kernels::MatmulActivation::gelu ? ", gelu" : "");
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
  const ParseResult run = parse_run(split.pretrain, flags.world_size, catalogue);
  problems.insert(problems.end(), run.report.problems.begin(), run.report.problems.end());
  if (!problems.empty()) {
    std::cerr << format_problems(problems);
    return kExitUsage;
  }
  if (flags.list) {
    const auto products = products_of(run_config(run.options), int(run.world));
    for (const auto& product : products) std::cout << text_of(product) << "\n";
    std::cout << products.size() << " products\n";
    return kExitDone;
  }
  prepare_process({});
  RuntimeOptions device = runtime_options(run.options.train);
  if (device.kind != DeviceKind::cuda)
    throw UsageError("there is nothing to tune on a CPU\n  hint: tune where the GPU is");
  const auto products = products_of(run_config(run.options), int(run.world));
  device.gemm_table = "none";
  Runtime runtime(device);
  std::cout << meaningless_flags(RunCommand::tune, split.pretrain, run.report,
                                 flags.world_size.has_value(), catalogue)
            << "device: " << runtime.description() << std::endl;
  for (const std::string& line : kernels::shipped_gemm_tables())
    std::cout << "table in the program: " << line << std::endl;
  kernels::expect_gemms(runtime, products);
  const Path table =
      flags.output.empty() ? kernels::default_gemm_table(runtime) : Path(flags.output);
  PHX_CHECK(!table.empty(), "there is no cache folder (HOME is not set): give --output");
  double before = 0, after = 0;
  const auto progress = [&](const kernels::TunedGemm& gemm) {
    before += gemm.first_ms;
    after += gemm.best_ms;
    std::cout << fmt::format("{:<46}{:>3} candidates {:>9.4f} -> {:>9.4f} ms {:>7.1f} TFLOP/s\n",
                             gemm.problem, gemm.candidates, gemm.first_ms, gemm.best_ms,
                             gemm.flops / gemm.best_ms / 1e9)
              << std::flush;
  };
  using kernels::TuneWhich;
  kernels::tune_gemms(runtime, table, progress,
                      flags.only_new ? TuneWhich::only_new : TuneWhich::all);
  std::cout << fmt::format("{}: one of each takes {:.2f} ms, {:.2f} ms by the library's choice\n",
                           table.string(), after, before);
  return kExitDone;
}

}  // namespace phx
