#include "phalanx/plan/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "phalanx/base/error.h"

namespace phx {

namespace {

// Tensor parallelism beyond a machine's GPUs is too slow to advise.
constexpr int64_t kMostTensorParallel = 8;

struct Remedy {
  std::string flags;
  RunConfig config;
  int world = 0;
};

std::optional<Remedy> distributed_optimizer(const RunConfig& config, int world) {
  if (config.parallel.sharding() >= Sharding::optim ||
      data_parallel_size(config.parallel, world) * config.parallel.context_parallel_size == 1)
    return std::nullopt;
  Remedy remedy{"--use-distributed-optimizer", config, world};
  remedy.config.parallel.use_distributed_optimizer = true;
  return remedy;
}

std::optional<Remedy> sequence_parallel(const RunConfig& config, int world) {
  if (config.parallel.sequence_parallel) return std::nullopt;
  Remedy remedy{"--sequence-parallel", config, world};
  remedy.config.parallel.sequence_parallel = true;
  return remedy;
}

std::optional<Remedy> recompute(const RunConfig& config, int world) {
  if (config.train.recompute_granularity == RecomputeGranularity::full) return std::nullopt;
  Remedy remedy{"--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
                config, world};
  TrainConfig& train = remedy.config.train;
  train.recompute_granularity = RecomputeGranularity::full;
  train.recompute_method = RecomputeMethod::uniform;
  train.recompute_num_layers = 1;
  train.recompute_modules.clear();
  train.cpu_offloading_num_layers = 0;  // a layer that is computed again keeps nothing
  return remedy;
}

bool is_long(const RunConfig& config) {
  return config.model.seq_length >= 4 * config.model.hidden_size;
}

// The MLP's tensors are the largest of a layer.
std::optional<Remedy> mlp_in_pieces(const RunConfig& config, int world) {
  bool dense = false;
  for (int64_t layer = 0; layer < config.model.num_layers; ++layer)
    dense |= !config.model.has_experts(layer);
  if (!dense || !is_long(config)) return std::nullopt;
  constexpr int64_t kRowsOfAPiece = 16384;
  const int64_t rows = config.model.seq_length / config.parallel.context_parallel_size;
  const int64_t pieces = std::clamp<int64_t>(rows / kRowsOfAPiece, 2, 64);
  if (config.train.mlp_chunks_for_training >= pieces) return std::nullopt;
  Remedy remedy{str_cat("--mlp-chunks-for-training ", pieces), config, world};
  remedy.config.train.mlp_chunks_for_training = pieces;
  return remedy;
}

// Attention takes most of the time of long sequences: full recompute would do it twice.
std::optional<Remedy> recompute_around_attention(const RunConfig& config, int world) {
  if (!is_long(config)) return std::nullopt;
  std::optional<Remedy> remedy = recompute(config, world);
  if (!remedy) return std::nullopt;
  remedy->config.train.recompute_keep_attention = true;
  remedy->flags += " --recompute-keep-attention";
  if (const std::optional<Remedy> pieces = mlp_in_pieces(remedy->config, world)) {
    remedy->config = pieces->config;
    remedy->flags += " " + pieces->flags;
  }
  return remedy;
}

bool has_narrow_states(const OptimizerConfig& optim) {
  return optim.main_grads_dtype == StateDType::bf16 && optim.exp_avg_dtype == StateDType::bf16 &&
         optim.exp_avg_sq_dtype == StateDType::bf16;
}

std::optional<Remedy> narrow_states(const RunConfig& config, int world) {
  if (!config.train.bf16 || has_narrow_states(config.optim)) return std::nullopt;
  Remedy remedy{
      "--use-precision-aware-optimizer --main-grads-dtype bf16 --exp-avg-dtype bf16 "
      "--exp-avg-sq-dtype bf16",
      config, world};
  OptimizerConfig& optim = remedy.config.optim;
  optim.use_precision_aware_optimizer = true;
  optim.main_grads_dtype = optim.exp_avg_dtype = optim.exp_avg_sq_dtype = StateDType::bf16;
  return remedy;
}

std::optional<Remedy> offloaded_optimizer(const RunConfig& config, int world) {
  if (config.optim.optimizer_cpu_offload) return std::nullopt;
  Remedy remedy{
      "--use-precision-aware-optimizer --optimizer-cpu-offload "
      "--overlap-cpu-optimizer-d2h-h2d",
      config, world};
  OptimizerConfig& optim = remedy.config.optim;
  optim.use_precision_aware_optimizer = optim.optimizer_cpu_offload = true;
  optim.overlap_cpu_optimizer_d2h_h2d = true;
  return remedy;
}

std::optional<Remedy> smaller_micro_batch(const RunConfig& config, int world) {
  const int64_t size = config.train.micro_batch_size;
  if (size % 2 != 0) return std::nullopt;
  Remedy remedy{str_cat("--micro-batch-size ", size / 2), config, world};
  remedy.config.train.micro_batch_size = size / 2;
  return remedy;
}

// Twice as many ranks share a copy of the model: of the same ranks if data parallelism can give
// half of its own, else of twice as many.
Remedy doubled(const char* flag, int64_t ParallelConfig::*size, const RunConfig& config,
               int world) {
  Remedy remedy{str_cat(flag, " ", 2 * (config.parallel.*size)), config, world};
  remedy.config.parallel.*size *= 2;
  if (world % model_ranks(remedy.config.parallel) != 0) {
    remedy.world = 2 * world;
    remedy.flags += str_cat(" on ", remedy.world, " ranks");
  }
  return remedy;
}

std::optional<Remedy> more_tensor_parallel(const RunConfig& config, int world) {
  if (2 * config.parallel.tensor_model_parallel_size > kMostTensorParallel) return std::nullopt;
  return doubled("--tensor-model-parallel-size", &ParallelConfig::tensor_model_parallel_size,
                 config, world);
}

std::optional<Remedy> more_pipeline(const RunConfig& config, int world) {
  return doubled("--pipeline-model-parallel-size", &ParallelConfig::pipeline_model_parallel_size,
                 config, world);
}

using MakeRemedy = std::optional<Remedy> (*)(const RunConfig&, int);
constexpr MakeRemedy kOnTheSameRanks[] = {
    distributed_optimizer, sequence_parallel,   recompute,          mlp_in_pieces,
    narrow_states,         offloaded_optimizer, smaller_micro_batch};
// Quicker than one of those, and larger: no part of all together.
constexpr MakeRemedy kInstead[] = {recompute_around_attention};
constexpr MakeRemedy kMoreCuts[] = {more_tensor_parallel, more_pipeline};

class Tryer {
 public:
  Tryer(const RunConfig& config, const RunPlan& plan, const TrialOptions& options,
        const std::function<void(const std::string&)>& progress)
      : config_(config),
        world_(plan.layout.mesh.sizes.world()),
        flops_(plan.flops()),
        options_(options),
        progress_(progress) {}

  std::vector<Trial> run() {
    bool fits = false;
    for (const MakeRemedy make : kOnTheSameRanks) fits |= attempt(make(config_, world_));
    for (const MakeRemedy make : kInstead) fits |= attempt(make(config_, world_));
    for (const MakeRemedy make : kMoreCuts) fits |= attempt(make(config_, world_));
    if (!fits && trials_.size() > 1) attempt(all_together());
    return std::move(trials_);
  }

 private:
  static bool possible(const Remedy& remedy) {
    return layout_problems(remedy.config.layout(), remedy.world).empty();
  }

  bool attempt(const std::optional<Remedy>& remedy) {
    if (!remedy || !possible(*remedy)) return false;
    if (progress_) progress_(remedy->flags);
    const RunPlan plan = plan_run(remedy->config, remedy->world, options_.plan);
    trials_.push_back(
        {.flags = remedy->flags,
         .added_flops = plan.flops() / flops_ - 1,
         .taken = plan.largest().memory.reserved,
         .fits = fit(remedy->config, plan, options_.plan.target, options_.device_bytes).fits});
    return trials_.back().fits;
  }

  std::optional<Remedy> all_together() const {
    Remedy all{"", config_, world_};
    for (const MakeRemedy make : kOnTheSameRanks) {
      const std::optional<Remedy> next = make(all.config, all.world);
      if (!next || !possible(*next)) continue;
      all.config = next->config;
      all.flags += (all.flags.empty() ? "" : " ") + next->flags;
    }
    return all;
  }

  const RunConfig& config_;
  int world_;
  double flops_;
  const TrialOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  std::vector<Trial> trials_;
};

}  // namespace

std::vector<Trial> try_remedies(const RunConfig& config, const RunPlan& plan,
                                const TrialOptions& options,
                                const std::function<void(const std::string&)>& progress) {
  return Tryer(config, plan, options, progress).run();
}

}  // namespace phx
