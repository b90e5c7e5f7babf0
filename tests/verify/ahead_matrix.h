// Layouts of models that predict several tokens ahead: the same method as in parity_matrix.h with
// options of their own.
#pragma once

#include <vector>

#include "verify/attention_matrix.h"

namespace phx::testing {

inline void experts_ahead_like(RunConfig& config) {
  expert_model(config);
  // As the other models have it: their runs share the data.
  config.model.seq_length = config.model.max_position_embeddings = 8;
  MoeConfig& moe = config.model.moe;
  moe.moe_aux_loss_coeff = {0.3};
  moe.moe_z_loss_coeff = 0.1;
  moe.moe_token_dispatcher_type = TokenDispatcherType::alltoall;
  biased(moe);
  moe.moe_router_score_function = RouterScoreFunction::sigmoid;
}

inline std::vector<MatrixOption> ahead_matrix_options() {
  using Ranks = ParallelConfig;
  const auto zero_bubble = [](Ranks& r) { r.pipeline_schedule = "zb-h1"; };
  const auto chunks = [](Ranks& r) { r.num_virtual_stages_per_pipeline_rank = 2; };
  const auto layout = [](const char* text) {
    return [text](Ranks& r) { r.pipeline_model_parallel_layout = text; };
  };
  const auto model = [](const char* name, void (*shape)(RunConfig&)) {
    return Setting{name, [shape](Draft& draft) { shape(draft); }};
  };
  const auto ahead = [](const char* name, int64_t layers, double factor) {
    return Setting{name, [=](Draft& draft) {
                     draft.model.mtp_num_layers = layers;
                     draft.model.mtp_loss_scaling_factor = factor;
                   }};
  };
  const auto dropout = [](double p) {
    return [p](Draft& draft) { draft.model.attention_dropout = draft.model.hidden_dropout = p; };
  };
  const auto nothing = [](Draft&) {};
  return {
      // Learned positions, rotation, windows that alternate, latent attention, experts.
      {"model",
       {model("GPT-2", gpt2_like), model("Llama", llama_like), model("Gemma-2", gemma2_like),
        model("latent", latent_like), model("experts", experts_ahead_like)}},
      {"ahead", {ahead("1 ahead", 1, 0.5), ahead("2 ahead", 2, 0.8)}},
      {"dropout", {{"dropout", dropout(0.1)}, {"no dropout", dropout(0)}}},
      {"embedding",
       {{"tied", [](Draft& d) { d.model.untie_embeddings_and_output_weights = false; }},
        {"untied", [](Draft& d) { d.model.untie_embeddings_and_output_weights = true; }}}},
      {"experts", {experts("EP1", 1), experts("EP2", 2), experts("EP4 ETP1", 4, 1)}},
      {"tensor",
       {tensor("TP1", 1), tensor("TP2", 2), tensor("TP2 SP", 2, true), tensor("TP4 SP", 4, true)}},
      {"pipeline",
       {pipeline("PP1", 1, 2), pipeline("PP2", 2, 4), pipeline("PP2 zb-h1", 2, 4, zero_bubble),
        pipeline("PP2 VPP2", 2, 4, chunks), pipeline("PP2 Ett|t|t|mL", 2, 4, layout("Ett|t|t|mL")),
        pipeline("PP3 Ett|tm|L", 3, 3, layout("Ett|tm|L")),
        pipeline("PP4 Et|tt|m|L", 4, 3, layout("Et|tt|m|L")),
        pipeline("PP4 Et|tm||L", 4, 2, layout("Et|tm||L")),
        pipeline("PP2 Ettm|L", 2, 2, layout("Ettm|L")), pipeline("PP4 VPP2", 4, 8, chunks)}},
      {"data",
       {data("DP1", 1), data("DP2", 2), data("DP2 overlap", 2, {.overlap_reduce = true}),
        data("DP2 ZeRO-1 overlap both", 2,
             {.zero = true, .overlap_reduce = true, .overlap_gather = true}),
        data("DP4 ZeRO-1", 4, {.zero = true})}},
      {"batch", {batch("1 x 4", 1, 4), batch("2 x 2", 2, 2), batch("4 x 1", 1, 4)}},
      {"recompute",
       {{"none", nothing},
        tiled_recompute("uniform 1 keep attention 3 pieces", 3),
        full_recompute("block 1", RecomputeMethod::block, 1),
        selective_recompute("core_attn layernorm", {"core_attn", "layernorm"}),
        selective_recompute("mlp moe", {"mlp", "moe"})}},
  };
}

// What of a layout the reference on one rank has, too.
inline std::string ahead_reference(const MatrixLayout& layout) {
  std::string key;
  for (size_t i = 0; i < 4; ++i) key += layout.settings[i] + ", ";
  return key;
}

inline const std::vector<MatrixLayout>& ahead_matrix() {
  static const std::vector<MatrixLayout> layouts = make_matrix(ahead_matrix_options());
  return layouts;
}

}  // namespace phx::testing
