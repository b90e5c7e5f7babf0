#include "phalanx/convert/hf_experts.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Problems = std::vector<std::string>;

constexpr const char* kStep = "decoder_sparse_step";
constexpr const char* kDense = "mlp_only_layers";
constexpr const char* kBalance = "router_aux_loss_coef";

// 1: a layer with experts.
std::vector<int64_t> layers_with_experts(const Json& config, int64_t layers, Problems& problems) {
  const Json dense = config.value(kDense, Json());
  const auto step = config.value(kStep, int64_t{1});
  std::vector<int64_t> list(size_t(layers), 1);
  if (step < 1) {
    problems.push_back(str_cat("\"", kStep, "\" is ", step, ", but it should be 1 or more"));
    return list;
  }
  for (int64_t i = 0; i < layers; ++i) list[size_t(i)] = (i + 1) % step == 0;
  if (dense.is_null()) return list;
  for (const int64_t layer : dense.get<std::vector<int64_t>>())
    if (layer >= 0 && layer < layers) list[size_t(layer)] = 0;  // the library skips others too
  return list;
}

}  // namespace

std::vector<const char*> expert_keys(const Family& family) {
  if (family.experts == ExpertStyle::none) return {};
  std::vector<const char*> keys = {kBalance, "output_router_logits"};
  if (family.experts == ExpertStyle::sparse_step) keys.insert(keys.end(), {kStep, kDense});
  return keys;
}

void take_experts(const Family& family, const Json& config, Json& ours, Problems& problems) {
  if (family.experts == ExpertStyle::none) return;
  if (ours.value("num_experts", Json()).is_null()) {
    problems.emplace_back("the number of experts is null: models of this family have experts");
    return;
  }
  ours["moe_aux_loss_coeff"] = Json::array({config.value(kBalance, family.balance)});
  if (family.experts != ExpertStyle::sparse_step) return;
  const std::vector<int64_t> list =
      layers_with_experts(config, ours["num_layers"].get<int64_t>(), problems);
  if (std::ranges::count(list, 0) > 0) ours["moe_layer_freq"] = FrequencyPattern::of(list).text();
}

void give_experts(const Family& family, const TransformerConfig& model, Json& config) {
  if (family.experts == ExpertStyle::none) return;
  config[kBalance] = model.moe.coefficient("aux_loss");
  if (family.experts != ExpertStyle::sparse_step) return;
  Json dense = Json::array();
  for (int64_t i = 0; i < model.num_layers; ++i)
    if (!model.moe.has_experts(i)) dense.push_back(i);
  config[kStep] = 1;
  config[kDense] = dense;
}

}  // namespace phx
