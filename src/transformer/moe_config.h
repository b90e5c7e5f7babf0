// Mixture of experts: which layers have experts, how tokens choose them, how they are kept evenly
// used. Fields carry Megatron's names.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/frequency_pattern.h"
#include "phalanx/base/option_traits.h"

namespace phx {

struct Rule;

enum class RouterScoreFunction { softmax, sigmoid };
constexpr auto option_names(RouterScoreFunction) { return std::array{"softmax", "sigmoid"}; }

enum class RouterDType { fp32 };
constexpr auto option_names(RouterDType) { return std::array{"fp32"}; }

enum class TokenDispatcherType { allgather, alltoall };
constexpr auto option_names(TokenDispatcherType) { return std::array{"allgather", "alltoall"}; }

enum class TokenDropPolicy { probs, position };
constexpr auto option_names(TokenDropPolicy) { return std::array{"probs", "position"}; }

struct MoeConfig {
  std::optional<int64_t> num_experts;
  std::optional<int64_t> moe_ffn_hidden_size;
  std::optional<FrequencyPattern> moe_layer_freq;
  int64_t moe_router_topk = 2;
  std::vector<std::string> moe_router_load_balancing_type = {"aux_loss"};
  std::vector<double> moe_aux_loss_coeff = {0.0};
  std::optional<double> moe_z_loss_coeff;
  RouterScoreFunction moe_router_score_function = RouterScoreFunction::softmax;
  bool moe_router_pre_softmax = false;
  std::optional<double> moe_router_topk_scaling_factor;
  std::optional<int64_t> moe_router_num_groups;
  std::optional<int64_t> moe_router_group_topk;
  std::optional<int64_t> moe_router_group_best;
  bool moe_router_enable_expert_bias = false;
  double moe_router_bias_update_rate = 1e-3;
  std::optional<RouterDType> moe_router_dtype;
  bool moe_router_force_load_balancing = false;
  TokenDispatcherType moe_token_dispatcher_type = TokenDispatcherType::allgather;
  std::optional<double> moe_expert_capacity_factor;
  bool moe_pad_expert_input_to_capacity = false;
  TokenDropPolicy moe_token_drop_policy = TokenDropPolicy::probs;
  std::optional<double> moe_expert_rank_capacity_factor;
  std::optional<int64_t> moe_shared_expert_intermediate_size;
  bool moe_shared_expert_gate = false;
  bool moe_per_layer_logging = false;

  bool any() const { return num_experts.has_value(); }
  bool has_experts(int64_t layer) const;  // layers are counted from 0
  // The coefficient of a kind of balancing, 0 if it is not asked for.
  double coefficient(const std::string& type) const;

  template <class Field>
  void each(Field&& field) {
    const InRange count{1, 1024}, width{1, 1 << 20};
    field("num-experts", num_experts, "experts in a layer that has them", count,
          DefaultIs{"none: every layer has one MLP"});
    field("moe-ffn-hidden-size", moe_ffn_hidden_size, "inner width of an expert", width,
          DefaultIs{"--ffn-hidden-size"});
    field("moe-layer-freq", moe_layer_freq,
          "layers with experts: every N-th from the first on, or a list with 1 = experts",
          DefaultIs{"1, all of them"});
    field("moe-router-topk", moe_router_topk, "experts a token goes to", InRange{1, 64});
    field(
        "moe-router-load-balancing-type", moe_router_load_balancing_type,
        "losses that keep experts evenly used: over a micro-batch, each sequence, or the loads of "
        "the global batch before",
        OneOf{{"aux_loss", "seq_aux_loss", "global_aux_loss", "none"}},
        Refuses{{{"sinkhorn", "sinkhorn routing is not in this build yet"},
                 {"quantile_balancing", "quantile balancing is not in this build yet"}}});
    field("moe-aux-loss-coeff", moe_aux_loss_coeff, "coefficient of each of these losses");
    field("moe-z-loss-coeff", moe_z_loss_coeff, "coefficient of the loss on large router logits",
          NotNegative{});
    field("moe-router-score-function", moe_router_score_function, "scores of experts",
          Refuses{{{"sqrtsoftplus", "these scores are not in this build yet"}}});
    field("moe-router-pre-softmax", moe_router_pre_softmax,
          "softmax over all experts, before the choice; the weights then add up to less than 1");
    field("moe-router-topk-scaling-factor", moe_router_topk_scaling_factor,
          "multiplies the weights of the chosen experts", Positive{});
    field("moe-router-num-groups", moe_router_num_groups,
          "blocks of experts, of which a token's experts come from a few", count);
    field("moe-router-group-topk", moe_router_group_topk, "how many of these blocks", count);
    field("moe-router-group-best", moe_router_group_best,
          "a block is ranked by the sum of so many of its best scores (DeepSeek-V2: 1)", count,
          DefaultIs{"--moe-router-topk / --moe-router-group-topk"});
    field("moe-router-enable-expert-bias", moe_router_enable_expert_bias,
          "add a number of each expert to its scores for the choice, which rises while the expert "
          "gets fewer tokens than others (DeepSeek-V3)");
    field("moe-router-bias-update-rate", moe_router_bias_update_rate,
          "by how much these numbers change in a step", NotNegative{});
    field("moe-router-dtype", moe_router_dtype,
          "type of the products behind the router's gradients; its scores are in fp32 anyway",
          Refuses{{{"fp64", "the router computes in fp32"}}}, DefaultIs{"that of the weights"});
    field("moe-router-force-load-balancing", moe_router_force_load_balancing,
          "send tokens to all experts in turn, whatever the router says: for benchmarks");
    field("moe-token-dispatcher-type", moe_token_dispatcher_type,
          "how tokens reach the ranks of their experts",
          Refuses{{{"flex", "DeepEP and its like are libraries for Python"}}});
    field("moe-expert-capacity-factor", moe_expert_capacity_factor,
          "tokens an expert takes from a micro-batch, as a multiple of an even share; the others "
          "are dropped",
          Positive{}, DefaultIs{"none: no token is dropped"});
    field("moe-pad-expert-input-to-capacity", moe_pad_expert_input_to_capacity,
          "Megatron: fill every expert up to its capacity; here shapes are fixed without it");
    field("moe-token-drop-policy", moe_token_drop_policy,
          "which tokens an expert keeps: those with the largest weight, or the first ones");
    field("moe-expert-rank-capacity-factor", moe_expert_rank_capacity_factor,
          "room for rows on a rank's experts, as a multiple of an even share; more is an error",
          AtLeast{1.0}, DefaultIs{"room for the worst case"});
    field("moe-shared-expert-intermediate-size", moe_shared_expert_intermediate_size,
          "inner width of the MLP that every token goes through as well", width, DefaultIs{"none"});
    field("moe-shared-expert-gate", moe_shared_expert_gate,
          "multiply that MLP's output by a sigmoid of the token (Qwen2-MoE)");
    field("moe-per-layer-logging", moe_per_layer_logging,
          "write the routers' losses and loads layer by layer to TensorBoard and --metrics-file");
  }
};

std::vector<Rule> moe_rules();

}  // namespace phx
