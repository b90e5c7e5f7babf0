#include "phalanx/convert/hf_positions.h"

#include <algorithm>
#include <cmath>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/kernels/rope_frequencies.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Problems = std::vector<std::string>;

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

// The value of a key that is there and not null.
const Json* given(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

double number(const Json& object, const char* key, double otherwise) {
  const Json* value = given(object, key);
  return value != nullptr ? value->get<double>() : otherwise;
}

// ---- rotary frequencies, in
// ----------------------------------------------------------------------

void take_yarn(const Json& rope, const Json& config, Json& ours, Problems& problems) {
  const double most = ours["max_position_embeddings"].get<double>();
  const double original = number(rope, "original_max_position_embeddings",
                                 number(config, "original_max_position_embeddings", most));
  const double factor = number(rope, "factor", most / original);
  // The library looks at the two magnitudes only where both are set.
  double mscale = number(rope, "mscale", 0), all = number(rope, "mscale_all_dim", 0);
  if (mscale == 0 || all == 0) mscale = 1, all = 0;
  ours["position_embedding_type"] = "yarn";
  ours["rotary_scaling_factor"] = factor;
  ours["yarn_original_max_position_embeddings"] = int64_t(original);
  ours["yarn_beta_fast"] = number(rope, "beta_fast", 32);
  ours["yarn_beta_slow"] = number(rope, "beta_slow", 1);
  ours["mscale"] = mscale;
  ours["mscale_all_dim"] = all;
  const double magnitude =
      kernels::yarn_magnitude(factor, mscale) / kernels::yarn_magnitude(factor, all);
  const double wanted = number(rope, "attention_factor", magnitude);
  if (std::abs(wanted - magnitude) > 1e-6)
    problems.push_back(
        str_cat("rope \"attention_factor\" is ", wanted,
                ", but only what follows from the factor is computed here: ", magnitude));
  const Json* truncate = given(rope, "truncate");
  ours["yarn_correction_range_round_to_int"] = truncate == nullptr || *truncate != false;
}

// Scaling of one kind of layer. `rope` may also hold what other versions put there.
void take_scaling(const Json& rope, const Json& config, Json& ours, Problems& problems) {
  const Json* type = given(rope, "rope_type");
  if (type == nullptr) type = given(rope, "type");
  const std::string kind = type != nullptr ? type->get<std::string>() : "default";
  if (kind == "linear") {
    ours["rotary_seq_len_interpolation_factor"] = rope.at("factor");
  } else if (kind == "llama3") {
    ours["use_rope_scaling"] = true;
    ours["rope_scaling_factor"] = rope.at("factor");
    ours["rope_scaling_low_freq_factor"] = rope.at("low_freq_factor");
    ours["rope_scaling_high_freq_factor"] = rope.at("high_freq_factor");
    ours["rope_scaling_original_max_position_embeddings"] =
        rope.at("original_max_position_embeddings");
  } else if (kind == "yarn") {
    take_yarn(rope, config, ours, problems);
  } else if (kind != "default") {
    problems.push_back(str_cat("rope scaling of type \"", kind,
                               "\" is not computed here; default, linear, llama3 and yarn are"));
  }
  const double part =
      number(rope, "partial_rotary_factor", number(config, "partial_rotary_factor", 1));
  if (part != 1)
    problems.push_back(str_cat("\"partial_rotary_factor\" is ", part,
                               ", but heads of this family are rotated whole"));
}

void take_rope(const Family& family, const Json& config, bool windows, Json& ours,
               Problems& problems) {
  const Json* newer = given(config, "rope_parameters");
  const Json* older = given(config, "rope_scaling");
  const bool nested = newer != nullptr && (newer->contains(kFull) || newer->contains(kSliding));
  Json full = newer != nullptr ? *newer : older != nullptr ? *older : Json::object();
  if (nested) full = given(*newer, kFull) != nullptr ? newer->at(kFull) : Json::object();
  ours["rotary_base"] = number(full, "rope_theta", number(config, "rope_theta", family.rope_theta));
  take_scaling(full, config, ours, problems);

  const Json* sliding = nested ? given(*newer, kSliding) : nullptr;
  if (family.rope == RopeStyle::one) {
    if (sliding != nullptr && *sliding != full)
      problems.push_back("\"rope_parameters\" differ between kinds of layers");
    return;
  }
  const double local = number(config, "rope_local_base_freq", 10000);
  if (sliding != nullptr && sliding->value("rope_type", "default") != "default")
    problems.push_back("\"rope_parameters\": windowed layers are not stretched here");
  if (windows)
    ours["rotary_base_local"] = sliding != nullptr ? number(*sliding, "rope_theta", local) : local;
}

// ---- windows, in
// ---------------------------------------------------------------------------------

// 1: a layer with a window.
std::vector<int64_t> named_layers(const Json& types, Problems& problems) {
  std::vector<int64_t> list;
  for (const Json& type : types) {
    if (type != kSliding && type != kFull)
      problems.push_back(str_cat("\"layer_types\" holds ", json_text(type), "; only ", kFull,
                                 " and ", kSliding, " are computed here"));
    list.push_back(type == kSliding);
  }
  return list;
}

std::vector<int64_t> windowed_layers(const Family& family, const Json& config, int64_t layers,
                                     Problems& problems) {
  if (family.window == WindowStyle::none) return std::vector<int64_t>(size_t(layers), 0);
  if (family.window == WindowStyle::all_layers) return std::vector<int64_t>(size_t(layers), 1);
  if (family.window == WindowStyle::from_layer && !config.value("use_sliding_window", false))
    return std::vector<int64_t>(size_t(layers), 0);
  if (const Json* types = given(config, "layer_types")) return named_layers(*types, problems);
  std::vector<int64_t> list;
  const int64_t first = config.value("max_window_layers", int64_t{28});
  int64_t period = family.window_period;
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"})
    if (const Json* value = given(config, key)) period = value->get<int64_t>();
  for (int64_t i = 0; i < layers; ++i)
    list.push_back(family.window == WindowStyle::from_layer ? i >= first
                                                            : period < 1 || (i + 1) % period != 0);
  return list;
}

// Whether any layer has a window.
bool take_windows(const Family& family, const Json& config, Json& ours, Problems& problems) {
  const auto layers = ours["num_layers"].get<int64_t>();
  std::vector<int64_t> windowed = windowed_layers(family, config, layers, problems);
  const auto found = config.find("sliding_window");
  const bool none = found != config.end() ? found->is_null() : family.sliding_window == 0;
  if (none) std::ranges::fill(windowed, 0);
  if (std::ranges::count(windowed, 1) == 0) return false;
  const int64_t width = found != config.end() ? found->get<int64_t>() : family.sliding_window;
  if (width < 1) {
    problems.push_back(str_cat("\"sliding_window\" is ", width));
    return true;
  }
  ours["window_size"] = WindowSize{width - 1, 0}.text();
  if (std::ranges::count(windowed, 0) > 0)
    ours["window_attn_skip_freq"] = FrequencyPattern::of(windowed).text();
  return true;
}

// ---- out
// -----------------------------------------------------------------------------------------

Json scaling_of(const TransformerConfig& model) {
  if (model.uses_yarn()) {
    Json rope = {
        {"rope_type", "yarn"},
        {"factor", model.rotary_scaling_factor},
        {"original_max_position_embeddings",
         model.yarn_original_max_position_embeddings.value_or(model.max_position_embeddings)},
        {"beta_fast", model.yarn_beta_fast},
        {"beta_slow", model.yarn_beta_slow}};
    if (!model.yarn_correction_range_round_to_int) rope["truncate"] = false;
    if (model.mscale_all_dim != 0) {
      rope["mscale"] = model.mscale;
      rope["mscale_all_dim"] = model.mscale_all_dim;
    }
    return rope;
  }
  if (model.use_rope_scaling)
    return {
        {"rope_type", "llama3"},
        {"factor", model.rope_scaling_factor},
        {"low_freq_factor", model.rope_scaling_low_freq_factor},
        {"high_freq_factor", model.rope_scaling_high_freq_factor},
        {"original_max_position_embeddings", model.rope_scaling_original_max_position_embeddings}};
  if (model.rotary_seq_len_interpolation_factor)
    return {{"rope_type", "linear"}, {"factor", *model.rotary_seq_len_interpolation_factor}};
  return nullptr;
}

void give_windows(const Family& family, const TransformerConfig& model, Json& config) {
  std::vector<int64_t> windowed;
  Json types = Json::array();
  for (int64_t i = 0; i < model.num_layers; ++i) {
    windowed.push_back(model.layer_window(i).has_value());
    types.push_back(windowed.back() != 0 ? kSliding : kFull);
  }
  const int64_t count = std::ranges::count(windowed, 1);
  if (family.window == WindowStyle::none) return;
  if (count > 0) config["sliding_window"] = model.window_size->left + 1;
  if (family.window == WindowStyle::all_layers) {
    if (count == 0) config["sliding_window"] = nullptr;
    return;
  }
  if (family.window == WindowStyle::from_layer) {
    config["use_sliding_window"] = count > 0;
    config["max_window_layers"] = model.num_layers - count;  // right where the last ones have it
  }
  config["layer_types"] = types;
  if (family.window != WindowStyle::periodic) return;
  // For versions that know no "layer_types": the one period that says the same, if there is one.
  for (int64_t period = 1; period <= model.num_layers + 1; ++period) {
    bool same = true;
    for (int64_t i = 0; i < model.num_layers; ++i)
      same &= (windowed[size_t(i)] != 0) == ((i + 1) % period != 0);
    if (!same) continue;
    config["sliding_window_pattern"] = period;
    return;
  }
}

}  // namespace

std::vector<const char*> position_keys() {
  return {"rope_parameters",      "rope_scaling",           "rope_theta",
          "rope_local_base_freq", "partial_rotary_factor",  "original_max_position_embeddings",
          "sliding_window",       "sliding_window_pattern", "_sliding_window_pattern",
          "use_sliding_window",   "max_window_layers",      "layer_types"};
}

void take_positions(const Family& family, const Json& config, Json& ours, Problems& problems) {
  const bool windows = take_windows(family, config, ours, problems);
  if (family.rope != RopeStyle::none) take_rope(family, config, windows, ours, problems);
}

void give_positions(const Family& family, const TransformerConfig& model, Json& config) {
  for (const char* key : position_keys())
    if (std::string_view(key) != "sliding_window") config.erase(key);
  give_windows(family, model, config);
  if (family.rope == RopeStyle::none) return;
  config["rope_theta"] = model.rotary_base;
  config["rope_scaling"] = scaling_of(model);
  if (family.rope == RopeStyle::local_and_global)
    config["rope_local_base_freq"] = model.rotary_base_local.value_or(model.rotary_base);
}

}  // namespace phx
