// Layouts of models whose attention is not the plain one: the same method as in parity_matrix.h
// with options of their own.
#pragma once

#include <vector>

#include "verify/expert_matrix.h"

namespace phx::testing {

// OLMoE's norms of q and k over all heads; with TP 4 two ranks share a key head.
inline void all_heads_norm_like(RunConfig& config) {
  llama_like(config);
  config.model.qk_layernorm = config.model.qk_layernorm_all_heads = true;
  config.optim.apply_wd_to_qk_layernorm = true;
}

// The same with zero-centred weights, biases and a key head for every query head.
inline void all_heads_norm_1p_like(RunConfig& config) {
  all_heads_norm_like(config);
  config.model.group_query_attention = false;
  config.model.apply_layernorm_1p = true;
  config.model.add_bias_linear = true;
}

// DeepSeek-V3's latent attention, stretched by YaRN.
inline void latent_like(RunConfig& config) {
  small_run(config);
  rms_norm_without_biases(config);
  config.model.swiglu = true;
  latent_attention(config.model);
  stretched_by_yarn(config.model);
}

// Without a latent vector of queries and without norms of latent vectors; LayerNorm and biases.
inline void latent_lite_like(RunConfig& config) {
  latent_like(config);
  config.model.latent.q_lora_rank.reset();
  config.model.qk_layernorm = false;
  config.model.normalization = Normalization::LayerNorm;
  config.model.add_bias_linear = true;
  config.model.rotary_scaling_factor = 1;
}

// DeepSeek-V3 with its experts, the first layer without them.
inline void deepseek_like(RunConfig& config) {
  latent_like(config);
  MoeConfig& moe = config.model.moe;
  moe.num_experts = 8;
  moe.moe_ffn_hidden_size = 12;
  moe.moe_layer_freq = FrequencyPattern::of({0, 1, 1, 1});
  moe.moe_router_topk = 4;
  moe.moe_router_score_function = RouterScoreFunction::sigmoid;
  moe.moe_router_num_groups = 4;
  moe.moe_router_group_topk = 2;
  moe.moe_router_topk_scaling_factor = 2.5;
  moe.moe_router_load_balancing_type = {"seq_aux_loss"};
  moe.moe_aux_loss_coeff = {0.1};
  moe.moe_shared_expert_intermediate_size = 12;
  config.model.init_method_std = 0.3;  // routers that tell experts apart
}

inline std::vector<MatrixOption> attention_matrix_options() {
  using Ranks = ParallelConfig;
  const auto zero_bubble = [](Ranks& r) { r.pipeline_schedule = "zb-h1"; };
  const auto chunks = [](Ranks& r) { r.num_virtual_stages_per_pipeline_rank = 2; };
  const auto model = [](const char* name, void (*shape)(RunConfig&)) {
    return Setting{name, [shape](Draft& draft) { shape(draft); }};
  };
  const auto dropout = [](double p) {
    return [p](Draft& draft) { draft.model.attention_dropout = draft.model.hidden_dropout = p; };
  };
  const auto nothing = [](Draft&) {};
  return {
      {"model",
       {model("norm over all heads", all_heads_norm_like),
        model("norm over all heads, 1p", all_heads_norm_1p_like), model("latent", latent_like),
        model("latent, lite", latent_lite_like), model("DeepSeek-V3", deepseek_like)}},
      {"dropout", {{"dropout", dropout(0.1)}, {"no dropout", dropout(0)}}},
      {"experts", {experts("EP1", 1), experts("EP2", 2), experts("EP2 ETP1", 2, 1)}},
      {"tensor",
       {tensor("TP1", 1), tensor("TP2", 2), tensor("TP2 SP", 2, true), tensor("TP4", 4),
        tensor("TP4 SP", 4, true)}},
      {"pipeline",
       {pipeline("PP1", 1, 2), pipeline("PP2", 2, 4), pipeline("PP2 zb-h1", 2, 4, zero_bubble),
        pipeline("PP2 VPP2", 2, 4, chunks)}},
      {"data",
       {data("DP1", 1), data("DP2", 2),
        data("DP2 ZeRO-1 overlap both", 2,
             {.zero = true, .overlap_reduce = true, .overlap_gather = true})}},
      {"batch", {batch("2 x 1", 1, 2), batch("4 x 2", 2, 4)}},
      {"recompute",
       {{"none", nothing},
        full_recompute("uniform 1", RecomputeMethod::uniform, 1),
        selective_recompute("core_attn", {"core_attn"}),
        selective_recompute("layernorm", {"layernorm"}),
        selective_recompute("mla_up_proj", {"mla_up_proj"}),
        selective_recompute("core_attn layernorm mla_up_proj",
                            {"core_attn", "layernorm", "mla_up_proj"})}},
  };
}

// What of a layout the reference on one rank has, too.
inline std::string attention_reference(const MatrixLayout& layout) {
  return layout.settings[0] + ", " + layout.settings[1];
}

inline const std::vector<MatrixLayout>& attention_matrix() {
  static const std::vector<MatrixLayout> layouts = make_matrix(attention_matrix_options());
  return layouts;
}

}  // namespace phx::testing
