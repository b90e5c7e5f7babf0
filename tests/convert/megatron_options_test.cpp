#include "phalanx/convert/megatron_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "phalanx/base/json.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

nlohmann::json options_of(const char* args) {
  return megatron_model_options(parse_json(args), "iter_0000005");
}

TEST(MegatronOptions, ArgumentsMayHaveOtherNamesThanTheirFlags) {
  const auto options = options_of(R"({"layernorm_epsilon": 1e-6, "hidden_size": 8,
      "layernorm_zero_centered_gamma": true, "use_rotary_position_embeddings": true,
      "position_embedding_type": "learned_absolute", "data_path": ["a"], "num_query_groups": null})");
  EXPECT_EQ(options["norm_epsilon"], 1e-6);
  EXPECT_EQ(options["apply_layernorm_1p"], true);
  EXPECT_EQ(options["position_embedding_type"], "rope");
  EXPECT_EQ(options["hidden_size"], 8);
  EXPECT_FALSE(options.contains("data_path"));
  EXPECT_FALSE(options.contains("num_query_groups"));
}

TEST(MegatronOptions, OlderArgumentsHaveTheNamesOfTheFlags) {
  const auto options = options_of(R"({"norm_epsilon": 1e-6, "apply_layernorm_1p": true})");
  EXPECT_EQ(options["norm_epsilon"], 1e-6);
  EXPECT_EQ(options["apply_layernorm_1p"], true);
}

TEST(MegatronOptions, ArgumentsOfAnotherFunctionAreRefusedByName) {
  for (const char* args :
       {R"({"moe_latent_size": 8})", R"({"multi_latent_attention": true})",
        R"({"mtp_use_repeated_layer": true})", R"({"softmax_type": "learnable"})",
        R"({"qk_l2_norm": true})", R"({"apply_residual_connection_post_layernorm": true})",
        R"({"glu_linear_offset": 1.0})"}) {
    std::string key = parse_json(args).begin().key();
    std::ranges::replace(key, '_', '-');
    EXPECT_THAT(error_of([&] { options_of(args); }),
                HasSubstr("iter_0000005 was trained with --" + key + " "))
        << args;
  }
  options_of(
      R"({"num_experts": null, "moe_latent_size": null, "mtp_num_layers": 0, "softmax_type": "vanilla",
                 "glu_linear_offset": 0.0, "multi_latent_attention": false})");
}

TEST(MegatronOptions, OfExpertsHaveOurForm) {
  const auto options = options_of(R"({"num_experts": 4, "moe_router_topk": 2,
      "moe_router_load_balancing_type": "seq_aux_loss", "moe_aux_loss_coeff": 0.01,
      "moe_layer_freq": [0, 1, 1], "moe_token_dispatcher_type": "flex", "moe_z_loss_coeff": null,
      "moe_router_enable_expert_bias": true, "add_bias_linear": false})");
  EXPECT_EQ(options["num_experts"], 4);
  EXPECT_EQ(options["moe_router_enable_expert_bias"], true);
  EXPECT_EQ(options["moe_router_load_balancing_type"], nlohmann::json::array({"seq_aux_loss"}));
  EXPECT_EQ(options["moe_aux_loss_coeff"], nlohmann::json::array({0.01}));
  EXPECT_EQ(options["moe_layer_freq"], "[0,1,1]");
  EXPECT_FALSE(options.contains("moe_token_dispatcher_type")) << "each run's own affair";
  EXPECT_FALSE(options.contains("moe_z_loss_coeff"));
  EXPECT_FALSE(options_of(R"({"num_experts": 4, "moe_layer_freq": 1})").contains("moe_layer_freq"));
  EXPECT_EQ(options_of(R"({"num_experts": 4, "moe_layer_freq": 2})")["moe_layer_freq"], "2");
}

TEST(MegatronOptions, OfExpertsSayNothingOfADenseModel) {
  const auto options = options_of(R"({"num_experts": null, "moe_router_topk": 2,
      "moe_router_load_balancing_type": "aux_loss", "moe_layer_freq": 1,
      "moe_router_enable_expert_bias": true})");
  for (const char* key : {"num_experts", "moe_router_topk", "moe_router_load_balancing_type",
                          "moe_router_enable_expert_bias"})
    EXPECT_FALSE(options.contains(key)) << key;
}

}  // namespace
}  // namespace phx
