#include "phalanx/cli/verify_command.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <iostream>

#include "phalanx/base/error.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/pretrain_options.h"
#include "phalanx/cli/run_args.h"
#include "phalanx/train/layout.h"
#include "phalanx/verify/proof_text.h"
#include "phalanx/verify/resume.h"
#include "phalanx/verify/shrink.h"

namespace phx {

namespace {

struct VerifyOptions {
  std::optional<int64_t> world_size;
  bool verbose = false;
  bool resume = false;

  template <class Field>
  void each(Field&& field) {
    field("world-size", world_size, "ranks of the run", InRange{1, 1 << 24},
          DefaultIs{"two copies of the model: TP x PP x 2"});
    field("verbose", verbose, "show every gradient and weight, not only the worst");
    field("resume", resume, "prove instead that a run stopped, saved and resumed ends the same");
  }
};

std::string help(OptionSet& own) {
  return own.help(
      "phalanx verify [--world-size N] [--verbose] [--resume] FLAGS OF PRETRAIN\n\n"
      "Checks that a layout computes what one rank computes. Shrinks the model to a few small "
      "layers\n"
      "and the mesh to at most 16 ranks, which are threads of this process. How the model is "
      "split,\n"
      "the pipeline schedule, recompute and the exchange of gradients stay the same. Trains two "
      "steps\n"
      "in fp64 and compares them with one rank: loss, gradient norm, every gradient, every "
      "weight.\n"
      "Exit code 0: they agree; 1: something differs by more than 1e-10; 2: wrong usage.\n"
      "With --resume, the shrunk run trains in its own precision: six iterations at once, and "
      "three,\n"
      "a save, and three more. Losses, weights, masters and moments must be the same to the byte.\n"
      "All flags of `phalanx pretrain` are accepted.",
      "  phalanx verify --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\\n"
      "    --group-query-attention --num-query-groups 8 --seq-length 8192 \\\n"
      "    --max-position-embeddings 8192 --position-embedding-type rope --swiglu \\\n"
      "    --normalization RMSNorm --disable-bias-linear --vocab-size 128256 --mock-data \\\n"
      "    --micro-batch-size 1 --global-batch-size 512 --train-iters 1000 --lr 3e-4 --bf16 \\\n"
      "    --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 4 \\\n"
      "    --num-layers-per-virtual-pipeline-stage 4 --use-distributed-optimizer \\\n"
      "    --world-size 256");
}

// Without --world-size two copies of the model; one, if two do not share the batch.
ParseResult parse(const std::vector<std::string>& args, std::optional<int64_t> world_size,
                  const Catalogue& catalogue) {
  if (world_size) return parse_run(args, world_size, catalogue);
  const ParseResult given = parse_run(args, std::nullopt, catalogue);
  if (given.options.parallel.local_ranks) return given;
  ParseResult two = parse_run(args, 2 * fewest_ranks(given.options.parallel), catalogue);
  return two.report.ok() || !given.report.ok() ? two : given;
}

std::string mesh_text(const ParallelConfig& parallel, int64_t world) {
  const int64_t cp = parallel.context_parallel_size;
  return fmt::format("TP {}{} x PP {} x DP {} = {} rank{}", parallel.tensor_model_parallel_size,
                     cp > 1 ? str_cat(" x CP ", cp) : "", parallel.pipeline_model_parallel_size,
                     data_parallel_size(parallel, world), world, world == 1 ? "" : "s");
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "phalanx-verify-XXXXXX").string();
    PHX_CHECK(::mkdtemp(name.data()) != nullptr, "no folder ", name, " can be made");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const Path& path() const { return path_; }

 private:
  Path path_;
};

int run_resume(const SmallRun& small) {
  constexpr int64_t kIterations = 6;
  const TemporaryFolder folder;
  const ResumeProof proof =
      prove_resume(small.config, Sources(small.config), small.world, kIterations, folder.path());
  std::cout << resume_text(proof) << std::flush;
  return proof.faults.empty() ? kExitDone : kExitFailed;
}

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text.empty() ? "nothing" : text;
}

}  // namespace

int run_verify(std::span<const std::string> args, const Catalogue& catalogue) {
  VerifyOptions options;
  OptionSet own;
  own.add("Verify", options);
  const SplitArgs split = split_args(own, args);
  const ParseReport own_report = own.parse(split.own);
  const ParseResult parsed = parse(split.pretrain, options.world_size, catalogue);
  const ParseReport& report = parsed.report;
  if (split.help) {
    std::cout << help(own);
    return kExitDone;
  }
  Problems problems = own_report.problems;
  problems.insert(problems.end(), report.problems.begin(), report.problems.end());
  if (!problems.empty()) {
    std::cerr << format_problems(problems);
    return kExitUsage;
  }

  const PretrainOptions& given = parsed.options;
  const RunConfig config{.catalogue = given.catalogue,
                         .family = given.family(),
                         .model = given.model,
                         .parallel = given.parallel,
                         .optim = given.optim,
                         .train = given.train,
                         .data = given.data,
                         .sft = given.sft,
                         .json = {}};
  const SmallRun small =
      options.resume ? shrink_for_resume(config, parsed.world) : shrink(config, parsed.world);
  const RunCommand command = options.resume ? RunCommand::verify_resume : RunCommand::verify;
  std::cout << meaningless_flags(command, split.pretrain, parsed.report,
                                 options.world_size.has_value(), catalogue);
  std::cout << "layout: " << mesh_text(config.parallel, parsed.world) << "\n"
            << "shrunk: " << joined(small.changes) << "\n"
            << "proof:  " << mesh_text(small.config.parallel, small.world)
            << ", threads of this process, "
            << (options.resume ? "resumed after a stop, against one go"
                               : "in fp64, against one rank on the same mock tokens")
            << "\n\n"
            << std::flush;
  if (options.resume) return run_resume(small);
  const LayoutOutcome one = run_layout(on_one_rank(small.config, small.world), 1);
  const Parity parity = compare(run_layout(small.config, small.world), one);
  std::cout << proof_text(parity, small.world, options.verbose) << std::flush;
  return parity.faults().empty() ? kExitDone : kExitFailed;
}

}  // namespace phx
