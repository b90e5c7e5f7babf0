#include "phalanx/parallel/parallel_config.h"

#include "phalanx/base/error.h"
#include "phalanx/base/option_rules.h"

namespace phx {

Sharding ParallelConfig::sharding() const {
  if (use_torch_fsdp2) return Sharding::optim_grads_params;
  if (use_megatron_fsdp) return data_parallel_sharding_strategy;
  return use_distributed_optimizer ? Sharding::optim : Sharding::no_shard;
}

namespace {

// Gathering needs weights that others own, in buckets, which sharded units always are.
void check_gather_overlap(const OptionSet& options, Problems& problems) {
  if (!options.active("overlap-param-gather") || options.active("use-megatron-fsdp") ||
      options.active("use-torch-fsdp2"))
    return;
  for (const auto& [name, why] :
       {std::pair{"use-distributed-optimizer", "without it every rank has all weights already"},
        std::pair{"overlap-grad-reduce", "both use the same buckets"}})
    if (!options.active(name))
      problems.push_back({ProblemKind::rule, "--overlap-param-gather",
                          str_cat("--overlap-param-gather requires --", name, ": ", why),
                          str_cat("add --", name)});
}

void check_instances(const OptionSet& options, Problems& problems) {
  const char* name = "num-distributed-optimizer-instances";
  for (const char* sharded : {"use-distributed-optimizer", "use-megatron-fsdp", "use-torch-fsdp2"})
    if (options.active(sharded)) return;
  if (!known(options, name) || options.number(name) == 1) return;
  problems.push_back(
      {ProblemKind::rule, str_cat("--", name),
       shown(options, name) + ": nothing is sharded that could be kept several times",
       "add --use-distributed-optimizer or --use-megatron-fsdp, or leave it out"});
}

}  // namespace

std::vector<Rule> parallel_rules() {
  return {
      {"--overlap-param-gather requires --use-distributed-optimizer and --overlap-grad-reduce, or "
       "--use-megatron-fsdp",
       check_gather_overlap},
      {"--num-distributed-optimizer-instances requires --use-distributed-optimizer or "
       "--use-megatron-fsdp",
       check_instances},
      excludes("use-megatron-fsdp", "use-torch-fsdp2", "both are fully sharded data parallelism"),
      requires_option("grad-reduce-in-bf16", "bf16",
                      "gradients are never narrower than the weights"),
      at_most_one({"num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank",
                   "pipeline-model-parallel-layout"},
                  "each says how many chunks a pipeline rank has"),
  };
}

}  // namespace phx
