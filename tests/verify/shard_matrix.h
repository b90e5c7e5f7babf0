// Layouts of fully sharded data parallelism: the same method as in parity_matrix.h with options of
// their own.
#pragma once

#include <vector>

#include "verify/ahead_matrix.h"

namespace phx::testing {

struct ShardFlags {
  bool keep = false;           // weights stay until a step uses them no more
  int64_t ahead_elements = 0;  // 0: the next unit
  int64_t copies = 1;          // groups of ranks that each have all shards
  OuterSharding outer = OuterSharding::no_shard;
};

inline Setting shards(const char* name, int64_t ranks, Sharding sharding,
                      const ShardFlags& flags = {}) {
  return {name, [=](Draft& draft) {
            ParallelConfig& parallel = draft.parallel;
            draft.dp = ranks;
            parallel.use_megatron_fsdp = true;
            parallel.data_parallel_sharding_strategy = sharding;
            parallel.torch_fsdp2_no_reshard_after_forward = flags.keep;
            parallel.num_distributed_optimizer_instances = flags.copies;
            parallel.outer_dp_sharding_strategy = flags.outer;
            if (flags.ahead_elements > 0)
              parallel.suggested_communication_unit_size = flags.ahead_elements;
          }};
}

inline std::vector<MatrixOption> shard_matrix_options() {
  using Ranks = ParallelConfig;
  const auto zero_bubble = [](Ranks& r) { r.pipeline_schedule = "zb-h1"; };
  const auto chunks = [](Ranks& r) { r.num_virtual_stages_per_pipeline_rank = 2; };
  const auto layout = [](const char* text) {
    return [text](Ranks& r) { r.pipeline_model_parallel_layout = text; };
  };
  const auto model = [](const char* name, void (*shape)(RunConfig&)) {
    return Setting{name, [shape](Draft& draft) { shape(draft); }};
  };
  const auto dropout = [](double p) {
    return [p](Draft& draft) { draft.model.attention_dropout = draft.model.hidden_dropout = p; };
  };
  const auto nothing = [](Draft&) {};
  return {
      {"model",
       {model("GPT-2", gpt2_like), model("Llama", llama_like), model("Gemma-2", gemma2_like),
        model("latent", latent_like), model("experts", experts_ahead_like)}},
      {"ahead",
       {{"none ahead", nothing}, {"1 ahead", [](Draft& d) { d.model.mtp_num_layers = 1; }}}},
      {"dropout", {{"dropout", dropout(0.1)}, {"no dropout", dropout(0)}}},
      {"embedding",
       {{"tied", [](Draft& d) { d.model.untie_embeddings_and_output_weights = false; }},
        {"untied", [](Draft& d) { d.model.untie_embeddings_and_output_weights = true; }}}},
      {"experts", {experts("EP1", 1), experts("EP2", 2), experts("EP4 ETP1", 4, 1)}},
      {"tensor",
       {tensor("TP1", 1), tensor("TP2", 2), tensor("TP2 SP", 2, true), tensor("TP4 SP", 4, true)}},
      {"pipeline",
       {pipeline("PP1", 1, 3), pipeline("PP2", 2, 4), pipeline("PP2 zb-h1", 2, 4, zero_bubble),
        pipeline("PP2 VPP2", 2, 4, chunks), pipeline("PP4", 4, 4),
        pipeline("PP4 Et|tt||L", 4, 3, layout("Et|tt||L")), pipeline("PP4 VPP2", 4, 8, chunks),
        pipeline("PP2 tp-pp-dp", 2, 4, [](Ranks& r) { r.use_tp_pp_dp_mapping = true; })}},
      {"shards",
       {shards("DP2 ZeRO-1", 2, Sharding::optim), shards("DP2 ZeRO-2", 2, Sharding::optim_grads),
        shards("DP3 ZeRO-2", 3, Sharding::optim_grads),
        shards("DP2 ZeRO-3", 2, Sharding::optim_grads_params),
        shards("DP3 ZeRO-3", 3, Sharding::optim_grads_params),
        shards("DP4 ZeRO-3", 4, Sharding::optim_grads_params),
        shards("DP2 ZeRO-3 kept", 2, Sharding::optim_grads_params, {.keep = true}),
        shards("DP2 ZeRO-3 3 units ahead", 2, Sharding::optim_grads_params,
               {.ahead_elements = 6000}),
        shards("DP4 ZeRO-1 2 copies", 4, Sharding::optim, {.copies = 2}),
        shards("DP4 ZeRO-2 2 copies", 4, Sharding::optim_grads, {.copies = 2}),
        shards("DP4 ZeRO-3 2 copies", 4, Sharding::optim_grads_params, {.copies = 2}),
        shards("DP4 ZeRO-3 2 copies, optim", 4, Sharding::optim_grads_params,
               {.copies = 2, .outer = OuterSharding::optim})}},
      {"batch", {batch("1 x 4", 1, 4), batch("2 x 2", 2, 2), batch("4 x 1", 1, 4)}},
      {"recompute",
       {{"none", nothing},
        full_recompute("uniform 1", RecomputeMethod::uniform, 1),
        full_recompute("uniform 2", RecomputeMethod::uniform, 2),
        full_recompute("block 1", RecomputeMethod::block, 1),
        selective_recompute("core_attn layernorm", {"core_attn", "layernorm"}),
        selective_recompute("mlp moe", {"mlp", "moe"})}},
  };
}

// What of a layout the reference on one rank has, too.
inline std::string shard_reference(const MatrixLayout& layout) {
  std::string key;
  for (size_t i = 0; i < 4; ++i) key += layout.settings[i] + ", ";
  return key;
}

inline const std::vector<MatrixLayout>& shard_matrix() {
  static const std::vector<MatrixLayout> layouts = make_matrix(shard_matrix_options());
  return layouts;
}

}  // namespace phx::testing
