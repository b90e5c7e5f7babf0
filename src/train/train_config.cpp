#include "train/train_config.h"

#include <algorithm>

#include "base/error.h"
#include "base/option_rules.h"

namespace phx {

Precision TrainConfig::precision() const {
  if (fp64) return Precision::fp64;
  if (fp16) return Precision::fp16;
  return bf16 ? Precision::bf16 : Precision::fp32;
}

int64_t TrainConfig::global_batch(int64_t data_parallel) const {
  return global_batch_size.value_or(micro_batch_size * data_parallel);
}

int64_t TrainConfig::num_micro_batches(int64_t data_parallel) const {
  const int64_t together = micro_batch_size * data_parallel;
  PHX_CHECK(together > 0 && global_batch(data_parallel) % together == 0, "--global-batch-size ",
            global_batch(data_parallel), " is not a multiple of --micro-batch-size ",
            micro_batch_size, " x data parallel ", data_parallel);
  return global_batch(data_parallel) / together;
}

int64_t TrainConfig::iterations() const {
  if (train_iters) return *train_iters;
  return train_samples ? *train_samples / global_batch() : 0;
}

bool TrainConfig::recompute_core_attention() const {
  if (recompute_granularity != RecomputeGranularity::selective) return false;
  return recompute_modules.empty() || std::find(recompute_modules.begin(), recompute_modules.end(),
                                                "core_attn") != recompute_modules.end();
}

void TrainConfig::resolve(int64_t data_parallel) {
  global_batch_size = global_batch(data_parallel);
  if (recompute_granularity == RecomputeGranularity::selective && recompute_modules.empty()) {
    recompute_modules = {"core_attn"};
  }
}

namespace {

void add(Problems& problems, const std::string& name, std::string text, std::string hint) {
  problems.push_back({ProblemKind::rule, "--" + name, std::move(text), std::move(hint)});
}

void check_recompute(const OptionSet& options, Problems& problems) {
  const nlohmann::json value = options.at("recompute-granularity").get();
  const std::string kind = value.is_null() ? "" : value.get<std::string>();
  for (const char* name : {"recompute-method", "recompute-num-layers"}) {
    if (kind == "full" && !options.active(name)) {
      add(problems, name, str_cat("--recompute-granularity full requires --", name),
          "e.g. --recompute-method uniform --recompute-num-layers 1");
    }
    if (kind != "full" && options.active(name)) {
      add(problems, name, shown(options, name) + " needs --recompute-granularity full",
          kind.empty() ? "add it" : "selective recompute has modules instead");
    }
  }
  if (kind != "selective" && options.active("recompute-modules")) {
    add(problems, "recompute-modules",
        shown(options, "recompute-modules") + " needs --recompute-granularity selective",
        kind.empty() ? "add it" : "full recompute covers every module");
  }
}

}  // namespace

std::vector<Rule> train_rules() {
  return {
      exactly_one({"train-iters", "train-samples"}, "a run has one length"),
      at_most_one({"bf16", "fp16", "fp64"}, "a run has one precision"),
      {"--recompute-granularity full goes with a method and a number of layers, selective with "
       "modules",
       check_recompute},
      requires_option("save", "save-interval", "it says how often"),
      divides("save-interval", "save-retain-interval"),
      requires_option("ckpt-step", "load", "it says where to look"),
      requires_option("exit-on-missing-checkpoint", "load", "it says where to look"),
      {"--device cuda computes in bf16, fp16 or fp32",
       [](const OptionSet& options, Problems& problems) {
         if (!options.active("fp64") || options.at("device").get() != "cuda") return;
         add(problems, "fp64", "--fp64 and --device cuda exclude each other: proofs run on the CPU",
             "use --device cpu");
       }},
  };
}

}  // namespace phx
