// Layouts of models with experts: the same method as in parity_matrix.h with options of their own.
#pragma once

#include <algorithm>
#include <vector>

#include "verify/parity_matrix.h"

namespace phx::testing {

inline void expert_model(RunConfig& config) {
  llama_like(config);
  config.model.hidden_size = 16;
  config.model.seq_length = config.model.max_position_embeddings = 16;
  config.model.num_attention_heads = 4;
  config.model.ffn_hidden_size = 24;
  config.model.moe.num_experts = 8;
  config.model.moe.moe_ffn_hidden_size = 16;
  config.model.init_method_std = 0.3;  // routers that tell experts apart
}

inline Setting experts(const char* name, int64_t ep, std::optional<int64_t> etp = {}) {
  return {name, [=](Draft& draft) {
            draft.parallel.expert_model_parallel_size = ep;
            draft.parallel.expert_tensor_parallel_size = etp;
          }};
}

// Fast enough that the second step chooses otherwise than without it.
inline void biased(MoeConfig& moe) {
  moe.moe_router_enable_expert_bias = true;
  moe.moe_router_bias_update_rate = 0.05;
}

// Rows of a rank as a multiple of an even share, if every token goes to as many experts of it as it
// can.
inline double worst_share(const RunConfig& config) {
  const MoeConfig& moe = config.model.moe;
  const double ep = double(config.parallel.expert_model_parallel_size);
  const double local = double(*moe.num_experts) / ep, k = double(moe.moe_router_topk);
  return ep * std::min(k, local) / k;
}

// Room for 9 of 10 rows of the worst case; for all of them where a token's experts are of one
// group, which makes that case a common one. Comes behind the settings of the router and of the
// experts' ranks.
inline void less_room(Draft& draft) {
  MoeConfig& moe = draft.model.moe;
  const double share = moe.moe_router_group_topk == 1 ? 1.0 : 0.9;
  moe.moe_token_dispatcher_type = TokenDispatcherType::alltoall;
  moe.moe_expert_rank_capacity_factor = std::max(1.0, share * worst_share(draft));
}

// The first options say what the model is: router, losses, tokens, layers, attention, tokens ahead.
// The others say how it is distributed.
constexpr size_t kExpertModelOptions = 6;

inline std::vector<MatrixOption> expert_matrix_options() {
  using Ranks = ParallelConfig;
  const auto zero_bubble = [](Ranks& r) { r.pipeline_schedule = "zb-h1"; };
  const auto chunks = [](Ranks& r) { r.num_virtual_stages_per_pipeline_rank = 2; };
  const auto with = [](const char* name, void (*apply)(MoeConfig&)) {
    return Setting{name, [apply](Draft& draft) { apply(draft.model.moe); }};
  };
  const auto model = [](const char* name, void (*apply)(TransformerConfig&)) {
    return Setting{name, [apply](Draft& draft) { apply(draft.model); }};
  };
  const auto nothing = [](Draft&) {};
  return {
      {"router",
       {with("top 2", [](MoeConfig&) {}),
        with("top 3 before",
             [](MoeConfig& m) {
               m.moe_router_topk = 3;
               m.moe_router_pre_softmax = true;
             }),
        with("sigmoid, groups",
             [](MoeConfig& m) {
               m.moe_router_topk = 4;
               m.moe_router_score_function = RouterScoreFunction::sigmoid;
               m.moe_router_num_groups = 4;
               m.moe_router_group_topk = 2;
               m.moe_router_topk_scaling_factor = 2.5;
             }),
        with("sigmoid, bias",
             [](MoeConfig& m) {
               m.moe_router_score_function = RouterScoreFunction::sigmoid;
               biased(m);
             }),
        with("sigmoid, groups, bias",
             [](MoeConfig& m) {
               m.moe_router_score_function = RouterScoreFunction::sigmoid;
               m.moe_router_num_groups = 4;
               m.moe_router_group_topk = 1;
               biased(m);
             }),
        with("top 1 before",
             [](MoeConfig& m) {
               m.moe_router_topk = 1;
               m.moe_router_pre_softmax = true;
             })}},
      {"losses",
       {with("aux", [](MoeConfig& m) { m.moe_aux_loss_coeff = {0.3}; }),
        with("seq aux, z",
             [](MoeConfig& m) {
               m.moe_router_load_balancing_type = {"seq_aux_loss"};
               m.moe_aux_loss_coeff = {0.3};
               m.moe_z_loss_coeff = 0.1;
             }),
        with("aux, seq aux",
             [](MoeConfig& m) {
               m.moe_router_load_balancing_type = {"aux_loss", "seq_aux_loss"};
               m.moe_aux_loss_coeff = {0.2, 0.1};
             }),
        with("global aux",
             [](MoeConfig& m) {
               m.moe_router_load_balancing_type = {"global_aux_loss"};
               m.moe_aux_loss_coeff = {0.4};
             }),
        with("seq aux, global aux, z",
             [](MoeConfig& m) {
               m.moe_router_load_balancing_type = {"seq_aux_loss", "global_aux_loss"};
               m.moe_aux_loss_coeff = {0.1, 0.2};
               m.moe_z_loss_coeff = 0.1;
             }),
        with("no losses", [](MoeConfig& m) { m.moe_router_load_balancing_type = {"none"}; })}},
      {"tokens",
       {with("dropless", [](MoeConfig&) {}),
        with("capacity 1", [](MoeConfig& m) { m.moe_expert_capacity_factor = 1.0; }),
        with("capacity 0.5, padded",
             [](MoeConfig& m) {
               m.moe_expert_capacity_factor = 0.5;
               m.moe_pad_expert_input_to_capacity = true;
             }),
        with("capacity 0.7 by position",
             [](MoeConfig& m) {
               m.moe_expert_capacity_factor = 0.7;
               m.moe_token_drop_policy = TokenDropPolicy::position;
             }),
        with("capacity 1 by position, padded",
             [](MoeConfig& m) {
               m.moe_expert_capacity_factor = 1.0;
               m.moe_token_drop_policy = TokenDropPolicy::position;
               m.moe_pad_expert_input_to_capacity = true;
             })}},
      {"layers",
       {with("all", [](MoeConfig&) {}),
        with("every 2nd", [](MoeConfig& m) { m.moe_layer_freq = FrequencyPattern::every_nth(2); }),
        with("shared", [](MoeConfig& m) { m.moe_shared_expert_intermediate_size = 12; }),
        with("shared, gate",
             [](MoeConfig& m) {
               m.moe_shared_expert_intermediate_size = 12;
               m.moe_shared_expert_gate = true;
             })}},
      {"attention",
       {model("plain", [](TransformerConfig&) {}),
        model("latent, YaRN",
              [](TransformerConfig& model) {
                latent_attention(model);
                stretched_by_yarn(model);
              }),
        model("latent without q",
              [](TransformerConfig& model) {
                latent_attention(model);
                model.latent.q_lora_rank.reset();
                model.qk_layernorm = false;
              })}},
      {"ahead",
       {model("none ahead", [](TransformerConfig&) {}),
        model("1 ahead", [](TransformerConfig& model) { model.mtp_num_layers = 1; }),
        model("2 ahead",
              [](TransformerConfig& model) {
                model.mtp_num_layers = 2;
                model.mtp_loss_scaling_factor = 0.7;
              })}},
      {"experts",
       {experts("EP1 ETP1", 1, 1), experts("EP2", 2), experts("EP2 ETP1", 2, 1), experts("EP4", 4),
        experts("EP4 ETP1", 4, 1), experts("EP8 ETP1", 8, 1), experts("EP2 ETP2", 2, 2),
        experts("EP4 ETP2", 4, 2), experts("EP1 ETP2", 1, 2), experts("EP1 ETP4", 1, 4)}},
      {"dispatcher",
       {with("all-gather", [](MoeConfig&) {}),
        with("all-to-all",
             [](MoeConfig& m) { m.moe_token_dispatcher_type = TokenDispatcherType::alltoall; }),
        {"all-to-all, less room", less_room}}},
      {"tensor", {tensor("TP1", 1), tensor("TP2 SP", 2, true), tensor("TP4 SP", 4, true)}},
      {"pipeline",
       {pipeline("PP1", 1, 2), pipeline("PP2", 2, 4), pipeline("PP2 zb-h1", 2, 4, zero_bubble),
        pipeline("PP2 VPP2", 2, 4, chunks),
        pipeline("PP2 first 1", 2, 3, [](Ranks& r) { r.decoder_first_pipeline_num_layers = 1; }),
        pipeline("PP4", 4, 4), pipeline("PP4 zb-h1", 4, 4, zero_bubble),
        pipeline("PP4 VPP2", 4, 8, chunks)}},
      {"data",
       {data("DP1", 1), data("DP2", 2), data("DP2 overlap", 2, {.overlap_reduce = true}),
        data("DP2 ZeRO-1 overlap both", 2,
             {.zero = true, .overlap_reduce = true, .overlap_gather = true}),
        data("DP4 ZeRO-1", 4, {.zero = true}), data("DP4", 4)}},
      {"batch",
       {batch("2 x 1", 1, 2), batch("4 x 2", 2, 4), batch("4 x 1", 1, 4), batch("1 x 2", 2, 1)}},
      {"recompute",
       {{"none", nothing},
        full_recompute("uniform 1", RecomputeMethod::uniform, 1),
        full_recompute("block 1", RecomputeMethod::block, 1),
        selective_recompute("moe", {"moe"}),
        selective_recompute("moe_act shared_experts", {"moe_act", "shared_experts"}),
        selective_recompute("layernorm", {"layernorm"})}},
      {"dropout",
       {{"no dropout", nothing}, {"dropout", [](Draft& d) { d.model.hidden_dropout = 0.1; }}}},
      {"order",
       {{"tp-dp-pp", nothing},
        {"tp-pp-dp", [](Draft& d) { d.parallel.use_tp_pp_dp_mapping = true; }}}},
  };
}

// What of a layout the reference on one rank has, too.
inline std::string expert_reference(const MatrixLayout& layout) {
  std::string key;
  for (size_t i = 0; i < kExpertModelOptions; ++i) key += layout.settings[i] + ", ";
  return key;
}

inline const std::vector<MatrixLayout>& expert_matrix() {
  static const std::vector<MatrixLayout> layouts =
      make_matrix(expert_matrix_options(), [](Draft& draft) { expert_model(draft); });
  return layouts;
}

}  // namespace phx::testing
