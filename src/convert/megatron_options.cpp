#include "phalanx/convert/megatron_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/base/options.h"
#include "phalanx/transformer/transformer_config.h"
#include "phalanx/transformer/transformer_fields.h"

namespace phx {
namespace {

using Json = nlohmann::json;

// Arguments whose name is not the flag's: Megatron renames some over time.
struct Renamed {
  const char* ours;
  const char* theirs;
};
constexpr auto kRenamed = std::to_array<Renamed>({
    {"norm_epsilon", "layernorm_epsilon"},
    {"apply_layernorm_1p", "layernorm_zero_centered_gamma"},
});

// Arguments that make the weights another function, one that is not computed here, unless they are
// null, false, 0 or `usual`.
struct Other {
  const char* argument;
  const char* usual = "";
};
constexpr auto kOther = std::to_array<Other>({
    {"activation_func_clamp_value"},
    {"apply_residual_connection_post_layernorm"},
    {"attention_output_gate"},
    {"enable_mhc_connections"},
    {"experimental_attention_variant"},
    {"glu_linear_offset"},
    {"heterogeneous_layers_config_encoded_json"},
    {"heterogeneous_layers_config_path"},
    {"hybrid_layer_pattern"},
    {"hybrid_override_pattern"},
    {"is_hybrid_model"},
    {"linear_attention_freq"},
    {"moe_apply_probs_on_input"},
    {"moe_input_jitter_eps"},
    {"moe_latent_size"},
    {"mrope_section"},
    {"mtp_detach_heads"},
    {"mtp_hsm"},
    {"mtp_hybrid_override_pattern"},
    {"mtp_use_repeated_layer"},
    {"multi_latent_attention"},
    {"qk_l2_norm"},
    {"quick_geglu"},
    {"softmax_type", "vanilla"},
    {"use_mup"},
});

void check_known(const Json& args, const std::string& where) {
  for (const Other& other : kOther) {
    const Json value = args.value(other.argument, Json());
    const bool usual = value.is_null() || value == false || value == 0 || value == other.usual;
    std::string flag = other.argument;
    std::ranges::replace(flag, '_', '-');
    PHX_CHECK(usual, where, " was trained with --", flag, " ", json_text(value),
              ": such models are not read from Megatron's checkpoints");
  }
}

// Options of experts, in the form that they have here. Of a dense model, for which Megatron writes
// them too, they say nothing.
void take_experts(const Json& args, Json& options) {
  MoeConfig experts;
  OptionSet fields;
  fields.add("Model", experts);
  // How tokens travel, and whether the router is obeyed, is each run's own affair.
  const std::array kOfTheRun = {"moe_token_dispatcher_type", "moe_expert_rank_capacity_factor",
                                "moe_router_force_load_balancing"};
  const bool any = !args.value("num_experts", Json()).is_null();
  const Json known = fields.json();
  for (const auto& [key, unused] : known.items())
    if (!any || std::ranges::find(kOfTheRun, key) != kOfTheRun.end()) options.erase(key);
  if (!any) return;
  for (const char* key : {"moe_router_load_balancing_type", "moe_aux_loss_coeff"})
    if (options.contains(key) && !options[key].is_array())
      options[key] = Json::array({options[key]});
  const auto frequency = options.find("moe_layer_freq");
  if (frequency == options.end()) return;
  if (*frequency == 1)
    options.erase(frequency);
  else if (!frequency->is_string())
    *frequency = json_text(*frequency);
}

// Windows are lists there.
Json window_text(const Json& window) {
  if (!window.is_array() || window.size() != 2 || !window[0].is_number_integer() ||
      !window[1].is_number_integer())
    return window;
  return str_cat(window[0].get<int64_t>(), ",", window[1].get<int64_t>());
}

}  // namespace

Json megatron_model_options(const Json& args, const std::string& where) {
  check_known(args, where);
  TransformerConfig model;
  OptionSet fields;
  fields.add("Model", model);
  Json options = Json::object();
  const auto take = [&](const std::string& ours, const std::string& theirs) {
    const auto found = args.find(theirs);
    if (found != args.end() && !found->is_null()) options[ours] = *found;
  };
  const Json known = fields.json();
  // Latent attention is refused above; of other models its options, which Megatron always writes,
  // say nothing.
  LatentConfig latent;
  OptionSet idle_fields;
  idle_fields.add("Latent attention", latent);
  const Json idle = idle_fields.json();
  for (const auto& [key, unused] : known.items())
    if (!idle.contains(key)) take(key, key);
  take_experts(args, options);
  for (const Renamed& renamed : kRenamed) take(renamed.ours, renamed.theirs);
  // The older form of the flag.
  if (args.value("use_rotary_position_embeddings", Json()) == true)
    options["position_embedding_type"] = "rope";
  if (options.contains("window_size")) options["window_size"] = window_text(options["window_size"]);
  // With biases everywhere Megatron says it too.
  if (options.value("add_bias_linear", Json(true)) == true) options.erase("add_qkv_bias");
  // It says which GELU a layer with biases computes, and of other layers nothing: Megatron itself
  // switches it off there.
  const auto on = [&](const char* key) { return options.value(key, Json(false)) == true; };
  const bool gelu = !on("swiglu") && !on("squared_relu") && !on("openai_gelu") &&
                    options.value("add_bias_linear", Json(true)) == true;
  if (!gelu || !options.contains("bias_gelu_fusion")) options["bias_gelu_fusion"] = true;
  return options;
}

}  // namespace phx
