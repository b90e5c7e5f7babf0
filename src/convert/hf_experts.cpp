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

constexpr const char* kFirstDense = "first_k_dense_replace";
constexpr const char* kSharedCount = "n_shared_experts";
constexpr const char* kScaling = "routed_scaling_factor";
constexpr const char* kGroups = "n_group";
constexpr const char* kGroupTopk = "topk_group";
constexpr const char* kAlpha = "aux_loss_alpha";
constexpr const char* kBySequence = "seq_aux";
constexpr const char* kMethod = "topk_method";

int64_t whole_number(const Json& config, const char* key, int64_t otherwise) {
  const Json value = config.value(key, Json());
  return value.is_null() ? otherwise : value.get<int64_t>();
}

// Groups of experts, of which a token's experts come from a few. DeepSeek-V3 ranks them by the sum
// of their best two scores, DeepSeek-V2 by the best one.
void take_groups(const Json& config, bool v3, Json& ours, Problems& problems) {
  const int64_t groups = whole_number(config, kGroups, v3 ? 8 : 1);
  const int64_t used = whole_number(config, kGroupTopk, v3 ? 4 : 1);
  const auto topk = ours["moe_router_topk"].get<int64_t>();
  const std::string method = v3 ? "" : config.value(kMethod, Json("greedy")).get<std::string>();
  if (!v3 && method != "greedy" && method != "group_limited_greedy")
    problems.push_back(str_cat("\"", kMethod, "\" is ", method,
                               ", but of deepseek_v2 models only greedy and group_limited_greedy "
                               "are computed here"));
  if (groups == used || method == "greedy") return;  // any expert
  ours["moe_router_num_groups"] = groups;
  ours["moe_router_group_topk"] = used;
  const int64_t best = v3 ? 2 : 1;
  if (best * used != topk) ours["moe_router_group_best"] = best;  // not what it is without
}

void take_after_dense(const Family& family, const Json& config, Json& ours, Problems& problems) {
  const bool v3 = ours.value("moe_router_score_function", Json()) == "sigmoid";
  const auto layers = ours["num_layers"].get<int64_t>();
  std::vector<int64_t> list(size_t(layers), 1);
  const int64_t dense =
      std::clamp<int64_t>(whole_number(config, kFirstDense, v3 ? 3 : 0), 0, layers);
  std::fill_n(list.begin(), dense, 0);
  if (dense > 0) ours["moe_layer_freq"] = FrequencyPattern::of(list).text();
  const int64_t shared = whole_number(config, kSharedCount, v3 ? 1 : 2);
  if (shared < 0 || shared > 1024)
    problems.push_back(str_cat("\"", kSharedCount, "\" is ", shared));
  else if (shared > 0)
    ours["moe_shared_expert_intermediate_size"] =
        shared * ours["moe_ffn_hidden_size"].get<int64_t>();
  const double scaling = config.value(kScaling, v3 ? 2.5 : 1.0);
  if (scaling != 1) ours["moe_router_topk_scaling_factor"] = scaling;
  ours["moe_router_load_balancing_type"] =
      Json::array({config.value(kBySequence, true) ? "seq_aux_loss" : "aux_loss"});
  ours["moe_aux_loss_coeff"] = Json::array({config.value(kAlpha, 0.0)});
  if (v3 && ours["moe_router_topk"] == 1)
    problems.push_back(str_cat("\"num_experts_per_tok\" is 1: ", family.name,
                               " models divide its weight by itself, which is not computed here"));
  take_groups(config, v3, ours, problems);
}

void give_after_dense(const TransformerConfig& model, Json& config) {
  const MoeConfig& moe = model.moe;
  int64_t dense = 0;
  while (dense < model.num_layers && !moe.has_experts(dense)) ++dense;
  config[kFirstDense] = dense;
  config[kSharedCount] = moe.moe_shared_expert_intermediate_size.value_or(0) / model.expert_size();
  config[kScaling] = moe.moe_router_topk_scaling_factor.value_or(1.0);
  config[kGroups] = moe.moe_router_num_groups.value_or(1);
  config[kGroupTopk] = moe.moe_router_group_topk.value_or(1);
  if (moe.moe_router_score_function == RouterScoreFunction::softmax)
    config[kMethod] = moe.moe_router_num_groups ? "group_limited_greedy" : "greedy";
  const bool by_sequence = moe.coefficient("aux_loss") == 0;
  config[kBySequence] = by_sequence;
  config[kAlpha] = moe.coefficient(by_sequence ? "seq_aux_loss" : "aux_loss");
  config.emplace("num_nextn_predict_layers", 0);  // of families without a place for such layers
}

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
  if (family.experts == ExpertStyle::after_dense)
    return {kFirstDense,
            kSharedCount,
            kScaling,
            kGroups,
            kGroupTopk,
            kAlpha,
            kBySequence,
            kMethod,
            "ep_size",
            "num_nextn_predict_layers",
            "output_router_logits"};
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
  if (family.experts == ExpertStyle::after_dense)
    return take_after_dense(family, config, ours, problems);
  ours["moe_aux_loss_coeff"] = Json::array({config.value(kBalance, family.balance)});
  if (family.experts != ExpertStyle::sparse_step) return;
  const std::vector<int64_t> list =
      layers_with_experts(config, ours["num_layers"].get<int64_t>(), problems);
  if (std::ranges::count(list, 0) > 0) ours["moe_layer_freq"] = FrequencyPattern::of(list).text();
}

void give_experts(const Family& family, const TransformerConfig& model, Json& config) {
  if (family.experts == ExpertStyle::none) return;
  if (family.experts == ExpertStyle::after_dense) return give_after_dense(model, config);
  config[kBalance] = model.moe.coefficient("aux_loss");
  if (family.experts != ExpertStyle::sparse_step) return;
  Json dense = Json::array();
  for (int64_t i = 0; i < model.num_layers; ++i)
    if (!model.moe.has_experts(i)) dense.push_back(i);
  config[kStep] = 1;
  config[kDense] = dense;
}

}  // namespace phx
