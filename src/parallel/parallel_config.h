// How a run is cut over ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/option_traits.h"
#include "phalanx/parallel/sharding.h"

namespace phx {

struct Rule;

struct ParallelConfig {
  int64_t tensor_model_parallel_size = 1;
  int64_t pipeline_model_parallel_size = 1;
  int64_t context_parallel_size = 1;
  int64_t expert_model_parallel_size = 1;
  std::optional<int64_t> expert_tensor_parallel_size;
  bool sequence_parallel = false;
  bool use_tp_pp_dp_mapping = false;
  bool tp_comm_overlap = false;

  // Of context parallelism.
  std::vector<std::string> cp_comm_type = {"p2p"};           // of every layer, or one for all
  std::vector<int64_t> hierarchical_context_parallel_sizes;  // a2a, p2p

  // The pipeline.
  std::optional<int64_t> num_layers_per_virtual_pipeline_stage;
  std::optional<int64_t> num_virtual_stages_per_pipeline_rank;
  std::optional<int64_t> microbatch_group_size_per_virtual_pipeline_stage;
  std::optional<int64_t> decoder_first_pipeline_num_layers;
  std::optional<int64_t> decoder_last_pipeline_num_layers;
  bool account_for_embedding_in_pipeline_split = false;
  bool account_for_loss_in_pipeline_split = false;
  std::string pipeline_model_parallel_layout;
  bool overlap_p2p_communication = true;
  std::string pipeline_schedule = "1f1b";  // a name of the catalogue (pipeline/schedule_kind.h)

  // Data parallelism.
  bool use_distributed_optimizer = false;
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  bool grad_reduce_in_bf16 = false;
  std::optional<int64_t> ddp_bucket_size;
  bool use_megatron_fsdp = false;
  bool use_torch_fsdp2 = false;
  Sharding data_parallel_sharding_strategy = Sharding::optim_grads_params;
  OuterSharding outer_dp_sharding_strategy = OuterSharding::no_shard;
  int64_t num_distributed_optimizer_instances = 1;
  std::optional<int64_t> suggested_communication_unit_size;
  bool torch_fsdp2_no_reshard_after_forward = false;
  // What these flags come to.
  Sharding sharding() const;
  bool shards_by_unit() const { return sharding() >= Sharding::optim_grads; }

  // Ranks.
  std::optional<int64_t> local_ranks;
  int64_t distributed_timeout_minutes = 10;

  template <class Field>
  void each(Field&& field);
};

template <class Field>
void ParallelConfig::each(Field&& field) {
  // Products of several of them stay within 64 bits.
  const InRange ranks{1, 1 << 12};
  field("tensor-model-parallel-size", tensor_model_parallel_size,
        "ranks that share every matrix (TP)", ranks);
  field("pipeline-model-parallel-size", pipeline_model_parallel_size,
        "ranks that share the layers (PP)", ranks);
  field("context-parallel-size", context_parallel_size, "ranks that share every sequence (CP)",
        ranks);
  field("expert-model-parallel-size", expert_model_parallel_size,
        "ranks that share the experts (EP)", ranks);
  field("expert-tensor-parallel-size", expert_tensor_parallel_size,
        "ranks that share every expert's matrices", ranks, DefaultIs{"TP"});
  field("sequence-parallel", sequence_parallel,
        "split norms and dropout along the sequence over the tensor-parallel ranks; needs TP 2 or "
        "more");
  field("use-tp-pp-dp-mapping", use_tp_pp_dp_mapping,
        "number the ranks tp-cp-ep-pp-dp instead of tp-cp-ep-dp-pp");
  field("tp-comm-overlap", tp_comm_overlap,
        "split exchanges between tensor-parallel ranks into chunks that overlap with the "
        "neighbouring matrix product (cuda)");

  field(
      "cp-comm-type", cp_comm_type,
      "how attention reaches the keys of other context-parallel ranks, for all layers or a value "
      "for each: keys go round (p2p), are gathered (all_gather), heads are exchanged for positions "
      "(a2a), or both (a2a+p2p)",
      OneOf{{"p2p", "all_gather", "a2a", "a2a+p2p"}});
  field("hierarchical-context-parallel-sizes", hierarchical_context_parallel_sizes,
        "two numbers for --cp-comm-type a2a+p2p: neighbours that exchange heads, and how many such "
        "groups there are, between which keys go round; their product is CP",
        ranks);

  field("num-layers-per-virtual-pipeline-stage", num_layers_per_virtual_pipeline_stage,
        "layers per chunk; a pipeline rank then has several chunks (interleaved schedule)",
        Positive{});
  field("num-virtual-stages-per-pipeline-rank", num_virtual_stages_per_pipeline_rank,
        "chunks of layers per pipeline rank (VPP)", Positive{});
  field("microbatch-group-size-per-virtual-pipeline-stage",
        microbatch_group_size_per_virtual_pipeline_stage,
        "micro-batches that pass a chunk before the next chunk begins", Positive{},
        DefaultIs{"PP"});
  field("decoder-first-pipeline-num-layers", decoder_first_pipeline_num_layers,
        "layers of the first pipeline stage", Positive{}, DefaultIs{"an even share"});
  field("decoder-last-pipeline-num-layers", decoder_last_pipeline_num_layers,
        "layers of the last pipeline stage", Positive{}, DefaultIs{"an even share"});
  field("account-for-embedding-in-pipeline-split", account_for_embedding_in_pipeline_split,
        "count the embedding as a layer when layers are divided among stages");
  field("account-for-loss-in-pipeline-split", account_for_loss_in_pipeline_split,
        "count the loss as a layer when layers are divided among stages");
  field("pipeline-model-parallel-layout", pipeline_model_parallel_layout,
        "what every chunk holds, e.g. \"Et*3|(tt|)*2tL\"");
  field("overlap-p2p-communication", overlap_p2p_communication,
        "post receives only when their data is needed");
  field("pipeline-schedule", pipeline_schedule,
        "order of work in a pipeline: 1f1b (interleaved if a rank has several chunks), or zb-h1, "
        "which defers weight gradients to fill the bubble",
        Own{});

  field("use-distributed-optimizer", use_distributed_optimizer,
        "shard the optimizer state over the data-parallel ranks (ZeRO-1)");
  field("overlap-grad-reduce", overlap_grad_reduce,
        "reduce gradients bucket by bucket during the backward");
  field("overlap-param-gather", overlap_param_gather,
        "gather updated weights during the next forward");
  field("grad-reduce-in-bf16", grad_reduce_in_bf16, "keep and reduce gradients in bf16");
  field("ddp-bucket-size", ddp_bucket_size, "elements per gradient bucket", Positive{},
        DefaultIs{"40 million, at least a million a rank"});

  field(
      "use-megatron-fsdp", use_megatron_fsdp,
      "fully sharded data parallelism (FSDP): ranks divide what --data-parallel-sharding-strategy "
      "says");
  field("use-torch-fsdp2", use_torch_fsdp2,
        "the same as --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params");
  field("data-parallel-sharding-strategy", data_parallel_sharding_strategy,
        "what data-parallel ranks divide among themselves with --use-megatron-fsdp: nothing, the "
        "optimizer state (ZeRO-1), gradients too (ZeRO-2), weights too (ZeRO-3)");
  field("num-distributed-optimizer-instances", num_distributed_optimizer_instances,
        "groups of data-parallel ranks that each have all shards (hybrid sharding, HSDP)", ranks);
  field("outer-dp-sharding-strategy", outer_dp_sharding_strategy,
        "what these groups divide among each other: nothing, or the optimizer state");
  field("suggested-communication-unit-size", suggested_communication_unit_size,
        "elements of sharded weights that are gathered ahead of their use", Positive{},
        DefaultIs{"the next unit: a layer"});
  field("torch-fsdp2-no-reshard-after-forward", torch_fsdp2_no_reshard_after_forward,
        "keep gathered weights until the step uses them no more: gathered once a step, but the "
        "whole model is in memory");

  field("local-ranks", local_ranks,
        "run this many ranks as threads of this process, on CPUs, without a launcher", Positive{},
        Own{}, DefaultIs{"TP x PP x CP"});
  field("distributed-timeout-minutes", distributed_timeout_minutes,
        "longest time that a rank waits for another", Positive{});
}

std::vector<Rule> parallel_rules();

}  // namespace phx
