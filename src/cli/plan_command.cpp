#include "phalanx/cli/plan_command.h"

#include <fmt/format.h>

#include <iostream>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/format.h"
#include "phalanx/base/terminal.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/pretrain_options.h"
#include "phalanx/cli/run_args.h"
#include "phalanx/cli/train_main.h"
#include "phalanx/cli/usage_error.h"
#include "phalanx/plan/advice.h"
#include "phalanx/plan/memory_svg.h"
#include "phalanx/plan/report.h"
#include "phalanx/text/tokenizer.h"

namespace phx {

enum class PlanTarget { cuda, cpu };
constexpr auto option_names(PlanTarget) { return std::array{"cuda", "cpu"}; }

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

struct PlanFlags {
  std::optional<int64_t> world_size;
  PlanTarget target = PlanTarget::cuda;
  double gpu_memory_gib = 139.2;
  std::optional<double> library_memory_gib;
  bool bytes = false;
  std::string svg;

  template <class Field>
  void each(Field&& field) {
    field("world-size", world_size, "ranks of the run", Positive{},
          DefaultIs{"one copy of the model: TP x PP x CP"});
    field("target", target, "the device whose memory is planned");
    field("gpu-memory-gib", gpu_memory_gib,
          "GiB that a process can use of its GPU; 139.2 is an H200's 142,600 MiB", Positive{});
    field("library-memory-gib", library_memory_gib, "GiB of it that CUDA's context and NCCL take",
          NotNegative{}, DefaultIs{"an estimate: 1, and 0.5 for each group of ranks"});
    field("bytes", bytes, "print exact bytes");
    field("svg", svg, "also draw the ranks' memory into this file");
  }

  DeviceKind device() const {
    return target == PlanTarget::cuda ? DeviceKind::cuda : DeviceKind::cpu;
  }
  ByteUnits units() const { return bytes ? ByteUnits::exact : ByteUnits::human; }
};

void print_help(const OptionSet& own) {
  std::cout << own.help(
                   "phalanx plan [flags of pretrain] [flags]\n\n"
                   "Runs the training step of every kind of rank on a meta device, which allocates "
                   "nothing. Prints\nthe memory of each rank by purpose and at the start, whether "
                   "it fits the GPU, and what the rank\nsends and computes. Exit code 0: it fits, "
                   "1: it does not. "
                   "`phalanx pretrain --help` lists the flags of a run.",
                   "  phalanx plan --config llama3-8b.yaml --world-size 64\n\n"
                   "  phalanx plan --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\\n"
                   "    --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 "
                   "--swiglu \\\n"
                   "    --normalization RMSNorm --disable-bias-linear "
                   "--position-embedding-type rope \\\n"
                   "    --untie-embeddings-and-output-weights --vocab-size 128256 --seq-length "
                   "8192 \\\n"
                   "    --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size "
                   "128 --bf16 \\\n"
                   "    --tensor-model-parallel-size 4 --sequence-parallel --world-size 32 \\\n"
                   "    --use-distributed-optimizer")
            << std::flush;
}

// What of the GPU is left to the allocator.
struct Budget {
  int64_t gpu = 0;
  int64_t libraries = 0;
  bool estimated = true;
  int groups = 0;
  int64_t allocator() const { return gpu - libraries; }
};

Budget budget_of(const PlanFlags& flags, const RunPlan& plan) {
  Budget budget{.gpu = int64_t(flags.gpu_memory_gib * kGiB)};
  for (const RankPlan& rank : plan.stages) {
    budget.libraries = std::max(budget.libraries, library_memory(rank, DeviceKind::cuda).total());
    budget.groups = std::max(budget.groups, rank.groups);
  }
  if (flags.library_memory_gib) {
    budget.libraries = int64_t(*flags.library_memory_gib * kGiB);
    budget.estimated = false;
  }
  return budget;
}

std::string largest_line(const RunPlan& plan, ByteUnits units) {
  const MemoryReport& memory = plan.largest().memory;
  std::string text = fmt::format("largest: stage {} takes {}", plan.largest_stage(),
                                 bytes_text(memory.reserved, units));
  if (memory.peak_reserved > memory.reserved)
    text += fmt::format("; before its arena is planned, up to {}",
                        bytes_text(memory.peak_reserved, units));
  return text;
}

std::string libraries_line(const Budget& budget, ByteUnits units) {
  std::string text = fmt::format("libraries take about {}", bytes_text(budget.libraries, units));
  if (!budget.estimated) return text + ", as given";
  text += " more (estimate: 1 GiB for CUDA's context, kernels, cuBLASLt and cuDNN";
  if (budget.groups == 0) return text + ")";
  return text + fmt::format(
                    ", and 0.5 GiB for each\n  of {} groups of ranks; users report 1.6 GB "
                    "with one NCCL group, 6 GB with three or more: "
                    "github.com/NVIDIA/nccl/issues/864)",
                    budget.groups);
}

std::string verdict_line(const Fit& fit, const RunPlan& plan, const Budget& budget,
                         ByteUnits units) {
  const RankPlan& rank = plan.stages[size_t(fit.stage)];
  const int64_t needed = rank.memory.reserved + budget.libraries;
  const std::string of =
      fmt::format("{} of the GPU's {}", bytes_text(needed, units), bytes_text(budget.gpu, units));
  if (!fit.fits) return fmt::format("does not fit: stage {} needs {}", fit.stage, of);
  std::string text = fmt::format("fits: {}", of);
  if (needed <= budget.gpu)
    text += fmt::format(", {} to spare", bytes_text(budget.gpu - needed, units));
  if (fit.early_steps_tight)
    text += "; the first steps are slow, because cached memory has to be given back in between";
  if (!fit.stays_with_cache.empty()) text += "; " + fit.stays_with_cache;
  return text;
}

std::string trials_text(const std::vector<Trial>& trials, const Budget& budget, ByteUnits units) {
  if (trials.empty()) return "";
  std::string text = "what would help, each planned:\n";
  for (const Trial& trial : trials) {
    const int64_t needed = trial.taken + budget.libraries;
    text += fmt::format(
        "  {:<8}{:>12}{:>12}  {}\n", trial.fits ? "fits" : "", bytes_text(needed, units),
        trial.added_flops > 0.005 ? fmt::format("+{:.0f}% FLOP", 100 * trial.added_flops) : "",
        trial.flags);
  }
  return text;
}

int plan_and_print(const RunConfig& config, int world, const PlanFlags& flags) {
  Terminal terminal;
  const PlanOptions options{.target = flags.device()};
  const RunPlan plan = plan_run(config, world, options, [&](int done, int all) {
    terminal.set_status(fmt::format("planned {} of {} ranks", done, all));
  });
  terminal.clear_status();
  const ByteUnits units = flags.units();
  std::cout << plan_heading(config, plan, flags.device()) << "\n"
            << memory_of_ranks(plan, units) << host_memory_of_ranks(plan, units)
            << largest_line(plan, units) << "\n"
            << start_of_ranks(plan, flags.device(), units);
  const bool has_budget = flags.target == PlanTarget::cuda;
  const Budget budget = has_budget ? budget_of(flags, plan) : Budget{};
  Fit result;
  if (has_budget) {
    result = budget.allocator() > 0 ? fit(config, plan, options.target, budget.allocator())
                                    : Fit{.fits = false, .stage = plan.largest_stage()};
    std::cout << libraries_line(budget, units) << "\n"
              << verdict_line(result, plan, budget, units) << std::endl;
  }
  if (!result.fits)
    std::cout << trials_text(
        try_remedies(config, plan, {.plan = options, .device_bytes = budget.allocator()},
                     [&](const std::string& remedy) { terminal.set_status("trying " + remedy); }),
        budget, units);
  terminal.clear_status();
  std::cout << "\n" << communication_of_ranks(plan, units) << flops_of_step(config, plan);
  if (!flags.svg.empty()) {
    const std::string heading = plan_heading(config, plan, flags.device());
    write_file(flags.svg, draw_memory(plan, {.title = heading.substr(0, heading.find('\n')),
                                             .device_bytes = budget.allocator()}));
    std::cout << flags.svg << ": drawn\n";
  }
  return result.fits ? kExitDone : kExitFailed;
}

}  // namespace

int run_plan(std::span<const std::string> args, const Catalogue& catalogue) {
  PlanFlags flags;
  OptionSet own;
  own.add("Plan", flags);
  const SplitArgs split = split_args(own, args);
  if (split.help) {
    print_help(own);
    return kExitDone;
  }
  Problems problems = own.parse(split.own).problems;
  ParseResult run = parse_run(split.pretrain, flags.world_size, catalogue);
  problems.insert(problems.end(), run.report.problems.begin(), run.report.problems.end());
  if (!problems.empty()) {
    std::cerr << format_problems(problems);
    return kExitUsage;
  }
  const bool on_cpu = run.options.train.fp64 || run.options.train.device == DeviceChoice::cpu;
  if (on_cpu && !own.at("target").given) flags.target = PlanTarget::cpu;
  if (run.options.train.fp64 && flags.target == PlanTarget::cuda)
    throw UsageError("--fp64: no GPU kernel computes in doubles\n  hint: --target cpu");
  if (!run.options.model.padded_vocab_size) {
    std::string why = "the vocabulary's size is not known";
    try {
      make_tokenizer(run.options.data);
    } catch (const Error& error) {
      why = error.what();
    }
    throw UsageError(why + "\n  hint: --vocab-size says how many tokens there are");
  }
  std::cout << meaningless_flags(RunCommand::plan, split.pretrain, run.report,
                                 flags.world_size.has_value(), catalogue);
  return plan_and_print(run_config(run.options), int(run.world), flags);
}

}  // namespace phx
