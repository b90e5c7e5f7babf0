#include "phalanx/train/layout.h"

#include <algorithm>
#include <numeric>

#include "phalanx/base/error.h"
#include "phalanx/base/named_entry.h"
#include "phalanx/train/placement_config.h"

namespace phx {

int64_t expert_tensor_ranks(const ParallelConfig& parallel) {
  return parallel.expert_tensor_parallel_size.value_or(parallel.tensor_model_parallel_size);
}

int64_t fewest_ranks(const ParallelConfig& parallel) {
  const int64_t pp = parallel.pipeline_model_parallel_size;
  return pp * std::lcm(model_ranks(parallel) / pp,
                       parallel.expert_model_parallel_size * expert_tensor_ranks(parallel));
}

int64_t model_ranks(const ParallelConfig& parallel) {
  return parallel.tensor_model_parallel_size * parallel.pipeline_model_parallel_size *
         parallel.context_parallel_size;
}

int64_t data_parallel_size(const ParallelConfig& parallel, int64_t world) {
  return world / model_ranks(parallel);
}

ScheduleConfig Layout::schedule_config(int64_t micro_batches) const {
  return {.stages = placement.stages,
          .chunks = placement.chunks,
          .micro_batches = int(micro_batches),
          .group_size = group_size,
          .receive_ahead = receive_ahead};
}

Schedule Layout::train_schedule(int64_t micro_batches) const {
  const ScheduleConfig config = schedule_config(micro_batches);
  if (config.stages == 1) return one_stage_schedule(config.micro_batches);
  return kind.make(config, kind.options);
}

Schedule Layout::evaluate_schedule(int64_t micro_batches) const {
  return forward_only(schedule_config(micro_batches));
}

Layout make_layout(const LayoutConfig& config, int64_t world) {
  const Problems problems = layout_problems(config, world);
  PHX_CHECK(problems.empty(), "this layout cannot be trained\n", format_problems(problems));
  const ParallelConfig& ranks = config.parallel;
  const int tp = int(ranks.tensor_model_parallel_size);
  Layout layout;
  layout.placement = place_layers(placement_config(config.model, ranks));
  layout.mesh = {.sizes = {.tp = tp,
                           .cp = int(ranks.context_parallel_size),
                           .dp = int(data_parallel_size(ranks, world)),
                           .pp = int(ranks.pipeline_model_parallel_size)},
                 .order = ranks.use_tp_pp_dp_mapping ? kPipelineBeforeData : kDefaultOrder,
                 .key_sharers = std::max(tp / int(config.model.query_groups()), 1),
                 .chunks = layout.placement.chunks,
                 .experts = config.model.moe.any(),
                 .ep = int(ranks.expert_model_parallel_size),
                 .expert_tp = int(expert_tensor_ranks(ranks)),
                 .cp_inner = int(neighbours_that_exchange_heads(ranks)),
                 .shard_copies = ranks.sharding() == Sharding::no_shard
                                     ? 1
                                     : int(ranks.num_distributed_optimizer_instances),
                 .embedding_stages = layout.placement.embedding_stages(
                     !config.model.untie_embeddings_and_output_weights)};
  layout.kind = entry_of(config.schedules, ranks.pipeline_schedule, "--pipeline-schedule");
  layout.group_size = int(ranks.microbatch_group_size_per_virtual_pipeline_stage.value_or(0));
  layout.receive_ahead = ranks.overlap_p2p_communication ? 1 : 0;
  return layout;
}

}  // namespace phx
