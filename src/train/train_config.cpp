#include "phalanx/train/train_config.h"

#include <algorithm>
#include <filesystem>

#include "phalanx/base/error.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/train/batch_schedule.h"

namespace phx {

Precision TrainConfig::precision() const {
  if (fp64) return Precision::fp64;
  if (fp16) return Precision::fp16;
  return bf16 ? Precision::bf16 : Precision::fp32;
}

BatchSchedule TrainConfig::batch_schedule(int64_t seq_length, int64_t data_parallel) const {
  if (!step_batch_size_schedule.empty())
    return BatchSchedule::parse(step_batch_size_schedule, seq_length);
  const int64_t together = micro_batch_size * data_parallel;
  const int64_t size = global_batch_size.value_or(together);
  return BatchSchedule::constant(decrease_batch_size_if_needed ? size - size % together : size);
}

int64_t TrainConfig::global_batch(int64_t data_parallel) const {
  return batch_schedule(/*seq_length=*/1, data_parallel).largest();  // sizes have no length
}

int64_t TrainConfig::num_micro_batches(int64_t data_parallel) const {
  const int64_t together = micro_batch_size * data_parallel;
  PHX_CHECK(together > 0 && global_batch(data_parallel) % together == 0, "--global-batch-size ",
            global_batch(data_parallel), " is not a multiple of --micro-batch-size ",
            micro_batch_size, " x data parallel ", data_parallel);
  return global_batch(data_parallel) / together;
}

int64_t TrainConfig::iterations(const BatchSchedule& batches) const {
  if (train_iters) return *train_iters;
  return train_samples ? batches.iterations_within(*train_samples) : 0;
}

bool TrainConfig::recompute_core_attention() const {
  if (recompute_granularity != RecomputeGranularity::selective) return false;
  return recompute_modules.empty() || std::find(recompute_modules.begin(), recompute_modules.end(),
                                                "core_attn") != recompute_modules.end();
}

void TrainConfig::resolve(int64_t data_parallel) {
  if (!global_batch_size && step_batch_size_schedule.empty())
    global_batch_size = micro_batch_size * data_parallel;
  if (recompute_granularity == RecomputeGranularity::selective && recompute_modules.empty()) {
    recompute_modules = {"core_attn"};
  }
}

namespace {

void add(Problems& problems, const std::string& name, std::string text, std::string hint) {
  problems.push_back({ProblemKind::rule, "--" + name, std::move(text), std::move(hint)});
}

void check_recompute(const OptionSet& options, Problems& problems) {
  const std::string kind = options.text("recompute-granularity");
  for (const char* name : {"recompute-method", "recompute-num-layers"}) {
    if (kind == "full" && !options.active(name)) {
      add(problems, name, str_cat("--recompute-granularity full requires --", name),
          "e.g. --recompute-method uniform --recompute-num-layers 1");
    }
    if (kind != "full" && options.active(name)) {
      add(problems, name, shown(options, name) + " needs --recompute-granularity full",
          kind == "none" ? "add it" : "selective recompute has modules instead");
    }
  }
  if (kind != "full" && options.active("recompute-keep-attention"))
    add(problems, "recompute-keep-attention",
        "--recompute-keep-attention needs --recompute-granularity full",
        "leave it out: only whole layers compute their attention again");
  // Beyond Megatron: whole layers from the start, and modules of the others.
  const bool by_block = kind == "full" && options.text("recompute-method") == "block";
  if (kind != "selective" && !by_block && options.active("recompute-modules")) {
    add(problems, "recompute-modules",
        shown(options, "recompute-modules") + " needs --recompute-granularity selective",
        kind == "none"
            ? "add it"
            : "full recompute covers every module, but for --recompute-method block those "
              "of the layers behind");
  }
}

void check_offloading(const OptionSet& options, Problems& problems) {
  const double layers = options.number("cpu-offloading-num-layers").value_or(0);
  if (layers == 0 && options.active("cpu-offloading"))
    add(problems, "cpu-offloading", "--cpu-offloading requires --cpu-offloading-num-layers",
        "the fewer the faster: as many as do not fit");
  if (layers == 0) return;
  if (options.text("recompute-granularity") == "full")
    add(problems, "cpu-offloading-num-layers",
        shown(options, "cpu-offloading-num-layers") +
            " and --recompute-granularity full exclude each other: a layer that is computed again "
            "keeps nothing",
        "use one of them, or --recompute-granularity selective");
}

// An empty name is a variable of a script that was not set: the run would keep nothing.
void check_folders(const OptionSet& options, Problems& problems) {
  for (const char* name : {"save", "load", "pretrained-checkpoint"})
    if (options.at(name).given && options.text(name).empty())
      add(problems, name, str_cat("--", name, " \"\" names no folder"),
          "give a folder, or leave the flag out; a variable of your script may be empty");
}

// Going back in a folder and going on from its newest checkpoint exclude each other.
void check_auto_resume(const OptionSet& options, Problems& problems) {
  if (!options.active("auto-resume")) return;
  std::error_code missing;
  const std::string save = options.text("save"), load = options.text("load");
  const bool same =
      !load.empty() && (save == load || std::filesystem::equivalent(save, load, missing));
  for (const char* name : {"ckpt-step", "no-load-optim"}) {
    const bool given = std::string(name) == "ckpt-step" ? options.active("ckpt-step")
                                                        : options.active("load-optim");
    if (same && given)
      add(problems, name,
          str_cat("--", name, " and --auto-resume contradict each other: ", save,
                  " is both --load and --save"),
          "give another --save");
  }
  if (options.active("save-optim"))
    add(problems, "no-save-optim", "--auto-resume needs the optimizer's state in checkpoints",
        "leave --no-save-optim out");
}

void check_batch_schedule(const OptionSet& options, Problems& problems) {
  if (!options.active("step-batch-size-schedule")) return;
  const auto text = options.text("step-batch-size-schedule");
  const Problems wrong = BatchSchedule::problems(text, /*seq_length=*/1);
  problems.insert(problems.end(), wrong.begin(), wrong.end());
}

void check_profile(const OptionSet& options, Problems& problems) {
  if (!options.active("profile")) return;
  const std::optional<double> start = options.number("profile-step-start");
  const std::optional<double> end = options.number("profile-step-end");
  if (!start || !end || *start < *end) return;
  add(problems, "profile-step-end",
      str_cat("--profile-step-end ", *end, " is not after --profile-step-start ", *start,
              ": no iteration lies between them"),
      str_cat("use --profile-step-end ", *start + 2));
}

}  // namespace

std::vector<Rule> train_rules() {
  return {
      exactly_one({"train-iters", "train-samples"}, "a run has one length"),
      excludes("step-batch-size-schedule", "global-batch-size", "a schedule has all sizes"),
      excludes("step-batch-size-schedule", "decrease-batch-size-if-needed",
               "a schedule's sizes stay as they are"),
      {"--step-batch-size-schedule has rising thresholds from 0 on and a size for each",
       check_batch_schedule},
      at_most_one({"bf16", "fp16", "fp64"}, "a run has one precision"),
      {"--recompute-granularity full goes with a method and a number of layers, selective with "
       "modules",
       check_recompute},
      {"--cpu-offloading-num-layers excludes --recompute-granularity full", check_offloading},
      {"--profile-step-end comes after --profile-step-start", check_profile},
      requires_option("save", "save-interval", "it says how often"),
      divides("save-interval", "save-retain-interval"),
      requires_option("save-hf-interval", "save", "they are made of its checkpoints"),
      divides("save-interval", "save-hf-interval"),
      requires_option("save-verify", "save", "there is nothing to verify without it"),
      requires_option("save-into-used-folder", "save", "it names the folder"),
      requires_option("auto-resume", "save", "it looks for checkpoints there"),
      excludes("auto-resume", "save-into-used-folder", "one goes on, the other begins anew"),
      {"--auto-resume goes back in no folder, and needs the optimizer's state", check_auto_resume},
      {"--save, --load and --pretrained-checkpoint name a folder where they are given",
       check_folders},
      requires_option("ckpt-step", "load", "it says where to look"),
      requires_option("exit-on-missing-checkpoint", "load", "it says where to look"),
      {"--load-newest-valid requires --load or --auto-resume",
       [](const OptionSet& options, Problems& problems) {
         if (!options.active("load-newest-valid") || options.active("load") ||
             options.active("auto-resume"))
           return;
         add(problems, "load-newest-valid",
             "--load-newest-valid needs --load: it says where to look",
             "add --load, or --auto-resume");
       }},
      excludes("load-newest-valid", "ckpt-step", "one of them says which"),
      requires_option("use-checkpoint-args", "load", "it says where to look"),
      {"--device cuda computes in bf16, fp16 or fp32",
       [](const OptionSet& options, Problems& problems) {
         if (!options.active("fp64") || options.text("device") != "cuda") return;
         add(problems, "fp64", "--fp64 and --device cuda exclude each other: proofs run on the CPU",
             "use --device cpu");
       }},
  };
}

}  // namespace phx
