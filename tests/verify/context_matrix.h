// Layouts of context parallelism: the same method as in parity_matrix.h with options of their own.
#pragma once

#include <string>
#include <vector>

#include "verify/shard_matrix.h"

namespace phx::testing {

// Heads that as many ranks as there are groups can exchange for positions, tensor-parallel ones
// included.
inline void many_heads(RunConfig& config, int64_t heads, int64_t groups) {
  TransformerConfig& model = config.model;
  model.num_attention_heads = heads;
  model.kv_channels = 4;
  model.group_query_attention = groups < heads;
  model.num_query_groups = groups;
}

inline void context_gpt2(RunConfig& config) {
  gpt2_like(config);
  many_heads(config, 16, 16);
}
inline void context_llama(RunConfig& config) {
  llama_like(config);
  many_heads(config, 16, 8);
}
// A key head that ranks share, which they cannot exchange.
inline void context_shared_keys(RunConfig& config) { llama_like(config); }
// Windows over less than a chunk and over more, on every other layer.
inline void context_windows(RunConfig& config) {
  gemma2_like(config);
  many_heads(config, 16, 8);
  config.model.window_size = WindowSize{6, 0};
}
inline void context_latent(RunConfig& config) {
  latent_like(config);
  config.model.num_attention_heads = 8;
}
inline void context_experts(RunConfig& config) {
  experts_ahead_like(config);
  many_heads(config, 8, 8);
}
// Experts that have no room for some tokens, which goes by their order in the sequence.
inline void context_experts_in_order(RunConfig& config) {
  context_experts(config);
  MoeConfig& moe = config.model.moe;
  moe.moe_token_dispatcher_type = TokenDispatcherType::allgather;
  moe.moe_router_enable_expert_bias = false;
  moe.moe_router_score_function = RouterScoreFunction::softmax;
  moe.moe_router_load_balancing_type = {"seq_aux_loss"};
  moe.moe_expert_capacity_factor = 1.0;
  moe.moe_token_drop_policy = TokenDropPolicy::position;
}

inline Setting context(const char* name, int64_t ranks, std::vector<std::string> comms = {"p2p"},
                       std::vector<int64_t> sizes = {}) {
  return {name, [=](Draft& draft) {
            draft.parallel.context_parallel_size = ranks;
            draft.parallel.cp_comm_type = comms;
            draft.parallel.hierarchical_context_parallel_sizes = sizes;
          }};
}

// A way for every layer, in turn. Comes behind the pipeline, which says how many there are.
inline Setting context_by_layer(const char* name, int64_t ranks,
                                const std::vector<std::string>& comms,
                                const std::vector<int64_t>& sizes = {}) {
  return {name, [=](Draft& draft) {
            draft.parallel.context_parallel_size = ranks;
            draft.parallel.hierarchical_context_parallel_sizes = sizes;
            draft.parallel.cp_comm_type.clear();
            for (int64_t i = 0; i < draft.model.num_layers; ++i)
              draft.parallel.cp_comm_type.push_back(comms[size_t(i) % comms.size()]);
          }};
}

inline std::vector<MatrixOption> context_matrix_options() {
  using Ranks = ParallelConfig;
  const auto zero_bubble = [](Ranks& r) { r.pipeline_schedule = "zb-h1"; };
  const auto chunks = [](Ranks& r) { r.num_virtual_stages_per_pipeline_rank = 2; };
  const auto model = [](const char* name, void (*shape)(RunConfig&)) {
    return Setting{name, [shape](Draft& draft) {
                     shape(draft);
                     // Three rows for each of eight ranks' two chunks, eight for each of three
                     // ranks'.
                     draft.model.seq_length = draft.model.max_position_embeddings = 48;
                   }};
  };
  const auto dropout = [](double p) {
    return [p](Draft& draft) { draft.model.attention_dropout = draft.model.hidden_dropout = p; };
  };
  const auto nothing = [](Draft&) {};
  return {
      {"model",
       {model("GPT-2", context_gpt2), model("Llama", context_llama),
        model("shared key heads", context_shared_keys), model("windows", context_windows),
        model("latent", context_latent), model("experts", context_experts),
        model("experts in order", context_experts_in_order)}},
      {"ahead",
       {{"none ahead", nothing}, {"2 ahead", [](Draft& d) { d.model.mtp_num_layers = 2; }}}},
      {"documents",
       {{"one", nothing},
        // Mock documents that are kept apart are as long as the vocabulary is large: their ends are
        // in chunks, not between them.
        {"packed",
         [](Draft& d) {
           d.data.dataloader_inter_document_masking = true;
           d.model.vocab_size = 11;
         }}}},
      {"dropout", {{"dropout", dropout(0.1)}, {"no dropout", dropout(0)}}},
      {"embedding",
       {{"tied", [](Draft& d) { d.model.untie_embeddings_and_output_weights = false; }},
        {"untied", [](Draft& d) { d.model.untie_embeddings_and_output_weights = true; }}}},
      {"pipeline",
       {pipeline("PP1", 1, 2), pipeline("PP2", 2, 4), pipeline("PP2 zb-h1", 2, 4, zero_bubble),
        pipeline("PP2 VPP2", 2, 4, chunks), pipeline("PP4", 4, 4)}},
      {"context",
       {context("CP1", 1), context("CP2 p2p", 2), context("CP2 all_gather", 2, {"all_gather"}),
        context("CP2 a2a", 2, {"a2a"}), context("CP4 p2p", 4),
        context("CP4 all_gather", 4, {"all_gather"}), context("CP4 a2a", 4, {"a2a"}),
        context("CP4 a2a+p2p 2 2", 4, {"a2a+p2p"}, {2, 2}),
        context("CP4 a2a+p2p 4 1", 4, {"a2a+p2p"}, {4, 1}), context("CP3 p2p", 3),
        context("CP8 p2p", 8), context("CP8 a2a", 8, {"a2a"}),
        context("CP8 a2a+p2p 2 4", 8, {"a2a+p2p"}, {2, 4}),
        context("CP8 a2a+p2p 4 2", 8, {"a2a+p2p"}, {4, 2}),
        context_by_layer("CP2 p2p, a2a, all_gather", 2, {"p2p", "a2a", "all_gather"}),
        context_by_layer("CP4 a2a+p2p, p2p", 4, {"a2a+p2p", "p2p"}, {2, 2})}},
      {"tensor",
       {tensor("TP1", 1), tensor("TP2", 2), tensor("TP2 SP", 2, true), tensor("TP4", 4),
        tensor("TP4 SP", 4, true)}},
      {"experts", {experts("EP1", 1), experts("EP2", 2), experts("EP4 ETP1", 4, 1)}},
      {"data",
       {data("DP1", 1), data("DP2", 2),
        data("DP2 ZeRO-1 overlap both", 2,
             {.zero = true, .overlap_reduce = true, .overlap_gather = true}),
        shards("DP2 ZeRO-3", 2, Sharding::optim_grads_params),
        shards("DP1 ZeRO-3", 1, Sharding::optim_grads_params),
        shards("DP2 ZeRO-2 2 copies", 2, Sharding::optim_grads, {.copies = 2})}},
      {"batch", {batch("1 x 4", 1, 4), batch("2 x 2", 2, 2), batch("4 x 1", 1, 4)}},
      {"recompute",
       {{"none", nothing},
        tiled_recompute("uniform 1 keep attention 3 pieces", 3),
        selective_recompute("core_attn layernorm", {"core_attn", "layernorm"}),
        selective_recompute("mlp moe", {"mlp", "moe"})}},
      {"order",
       {{"tp-cp-dp-pp", nothing},
        {"tp-cp-pp-dp", [](Draft& d) { d.parallel.use_tp_pp_dp_mapping = true; }}}},
  };
}

// What of a layout the reference on one rank has, too.
inline std::string context_reference(const MatrixLayout& layout) {
  std::string key;
  for (size_t i = 0; i < 5; ++i) key += layout.settings[i] + ", ";
  return key;
}

inline const std::vector<MatrixLayout>& context_matrix() {
  static const std::vector<MatrixLayout> layouts = make_matrix(context_matrix_options());
  return layouts;
}

}  // namespace phx::testing
