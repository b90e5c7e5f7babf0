#include "phalanx/convert/function_differences.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/base/options.h"
#include "phalanx/transformer/transformer_fields.h"

namespace phx {
namespace {

using Json = nlohmann::json;

std::vector<int64_t> layers_where(const TransformerConfig& model,
                                  bool (*holds)(const TransformerConfig&, int64_t)) {
  std::vector<int64_t> list;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) list.push_back(holds(model, layer));
  return list;
}

bool all_are(const std::vector<int64_t>& list, int64_t value) {
  return std::ranges::all_of(list, [&](int64_t entry) { return entry == value; });
}

void drop_idle_rotation(TransformerConfig& model) {
  const TransformerConfig defaults;
  const PositionEmbedding type = model.position_embedding_type;
  const bool yarn = model.uses_yarn(), rotates = yarn || type == PositionEmbedding::rope;
  if (yarn) model.position_embedding_type = PositionEmbedding::yarn;
  if (!rotates) {
    model.rotary_base = defaults.rotary_base;
    model.rotary_base_local.reset();
    model.rotary_percent = defaults.rotary_percent;
    model.rotary_interleaved = false;
    model.rotary_seq_len_interpolation_factor.reset();
    model.no_rope_freq.reset();
  }
  if (!rotates || !model.use_rope_scaling) {
    model.use_rope_scaling = false;
    model.rope_scaling_factor = defaults.rope_scaling_factor;
    model.rope_scaling_low_freq_factor = defaults.rope_scaling_low_freq_factor;
    model.rope_scaling_high_freq_factor = defaults.rope_scaling_high_freq_factor;
    model.rope_scaling_original_max_position_embeddings =
        defaults.rope_scaling_original_max_position_embeddings;
  }
  if (!yarn) {
    model.rotary_scaling_factor = defaults.rotary_scaling_factor;
    model.yarn_original_max_position_embeddings.reset();
    model.yarn_beta_fast = defaults.yarn_beta_fast;
    model.yarn_beta_slow = defaults.yarn_beta_slow;
    model.yarn_correction_range_round_to_int = defaults.yarn_correction_range_round_to_int;
    model.mscale = defaults.mscale;
    model.mscale_all_dim = defaults.mscale_all_dim;
  }
  if (model.rotary_seq_len_interpolation_factor == 1.0)
    model.rotary_seq_len_interpolation_factor.reset();
  const bool stretched =
      yarn || model.use_rope_scaling || model.rotary_seq_len_interpolation_factor.has_value();
  if (model.rotary_base_local == model.rotary_base && !stretched) model.rotary_base_local.reset();
  if (model.no_rope_freq) {
    const std::vector<int64_t> plain = layers_where(
        model, [](const TransformerConfig& m, int64_t i) { return !m.layer_uses_rope(i); });
    model.no_rope_freq =
        all_are(plain, 0) ? std::nullopt : std::optional(FrequencyPattern::of(plain));
  }
}

// What is left of the experts says which there are and how a token chooses among them. Balancing
// belongs to training, as do the limits on an expert's tokens: the library drops none.
void drop_idle_experts(TransformerConfig& model) {
  MoeConfig& moe = model.moe;
  const MoeConfig defaults;
  if (!moe.any()) {
    moe = defaults;
    return;
  }
  const std::vector<int64_t> layers = layers_where(
      model, [](const TransformerConfig& m, int64_t i) { return m.moe.has_experts(i); });
  moe.moe_ffn_hidden_size = model.expert_size();
  if (all_are(layers, 1)) model.ffn_hidden_size = moe.moe_ffn_hidden_size;
  moe.moe_layer_freq =
      all_are(layers, 1) ? std::nullopt : std::optional(FrequencyPattern::of(layers));
  if (moe.moe_router_num_groups == moe.moe_router_group_topk) {  // all groups: no limit
    moe.moe_router_num_groups.reset();
    moe.moe_router_group_topk.reset();
  }
  if (!moe.moe_router_num_groups ||
      moe.moe_router_group_best == moe.moe_router_topk / moe.moe_router_group_topk.value_or(1))
    moe.moe_router_group_best.reset();
  if (moe.moe_router_topk_scaling_factor == 1.0) moe.moe_router_topk_scaling_factor.reset();
  moe.moe_router_load_balancing_type = defaults.moe_router_load_balancing_type;
  moe.moe_aux_loss_coeff = defaults.moe_aux_loss_coeff;
  moe.moe_z_loss_coeff.reset();
  moe.moe_token_dispatcher_type = defaults.moe_token_dispatcher_type;
  moe.moe_expert_capacity_factor.reset();
  moe.moe_pad_expert_input_to_capacity = false;
  moe.moe_token_drop_policy = defaults.moe_token_drop_policy;
  moe.moe_expert_rank_capacity_factor.reset();
  // Biases are numbers, as weights are; without any the function is that of zeros. Whether they
  // move is training's.
  moe.moe_router_enable_expert_bias = false;
  moe.moe_router_bias_update_rate = defaults.moe_router_bias_update_rate;
  moe.moe_router_dtype.reset();
  moe.moe_per_layer_logging = false;
}

void drop_idle_latents(TransformerConfig& model) {
  if (!model.latent.any()) model.latent = LatentConfig{};
  if (model.latent.any()) model.kv_channels.reset();  // it has head sizes of its own
  model.latent.rope_type.reset();                     // positions say it
}

// One way of saying what can be said in several, and defaults for what changes nothing.
TransformerConfig canonical(TransformerConfig model) {
  const TransformerConfig defaults;
  const std::vector<int64_t> windowed = layers_where(
      model, [](const TransformerConfig& m, int64_t i) { return m.layer_window(i).has_value(); });
  model.resolve();
  model.vocab_size = model.vocab_size.value_or(model.padded_vocab_size.value_or(0));
  model.group_query_attention = true;
  model.padded_vocab_size.reset();
  model.make_vocab_size_divisible_by = defaults.make_vocab_size_divisible_by;
  model.seq_length = 0;
  if (!model.has_position_table()) model.max_position_embeddings = 0;
  model.attention_dropout = model.hidden_dropout = 0;
  model.init_method_std = defaults.init_method_std;
  model.embedding_init_method_std.reset();
  if (model.add_bias_linear) model.add_qkv_bias = false;
  if (model.query_scale == double(model.head_dim())) model.query_scale.reset();
  if (model.embedding_scale == 1.0) model.embedding_scale.reset();

  model.window_attn_skip_freq.reset();
  if (all_are(windowed, 0)) {
    model.window_size.reset();
    model.rotary_base_local.reset();
  } else {
    model.window_size->right = 0;
    if (!all_are(windowed, 1)) model.window_attn_skip_freq = FrequencyPattern::of(windowed);
  }
  // What is predicted beside the next token changes no logits.
  model.mtp_num_layers = 0;
  model.mtp_loss_scaling_factor = defaults.mtp_loss_scaling_factor;
  drop_idle_rotation(model);
  drop_idle_experts(model);
  drop_idle_latents(model);
  model.openai_gelu = model.activation() == MlpActivation::gelu_tanh;
  model.bias_gelu_fusion = true;
  return model;
}

Json fields_json(TransformerConfig& model) {
  OptionSet set;
  set.add("Model", model);
  return set.json();
}

// Numbers may have gone through a text of fewer digits.
bool alike(const Json& a, const Json& b) {
  if (!a.is_number() || !b.is_number()) return a == b;
  const double x = a.get<double>(), y = b.get<double>();
  return std::abs(x - y) <= 1e-6 * std::max(std::abs(x), std::abs(y));
}

}  // namespace

std::vector<std::string> function_differences(const TransformerConfig& a,
                                              const TransformerConfig& b) {
  TransformerConfig first = canonical(a), second = canonical(b);
  const Json x = fields_json(first), y = fields_json(second);
  std::vector<std::string> differences;
  for (const auto& [key, value] : x.items()) {
    if (alike(value, y.at(key))) continue;
    const auto text = [](const Json& json) {
      return json.is_null() ? std::string("unset") : value_text(json);
    };
    differences.push_back(
        str_cat("--", kebab_case(key), ": ", text(value), " and ", text(y.at(key))));
  }
  return differences;
}

}  // namespace phx
