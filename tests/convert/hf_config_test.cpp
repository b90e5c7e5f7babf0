#include "phalanx/convert/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/hf_fixtures.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Texts = std::vector<std::string>;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HfConfig, WhatIsExportedMeansTheSameWhenImported) {
  for (const char* name : kHfFixtures) {
    SCOPED_TRACE(name);
    const Json config = fixture_config(name);
    const HfConfig before = config_from_hf(config, name);
    EXPECT_EQ(before.unread, Texts());
    for (const Json& base : {Json(), config}) {
      const Json exported = config_to_hf(*before.family, before.model, "float32", base);
      EXPECT_EQ(function_differences(before.model, imported(exported)), Texts());
    }
    EXPECT_STREQ(family_for(before.model).name, before.family->name);
  }
}

TEST(HfConfig, KeysOfTheOriginalThatSayNothingAboutTheFunctionStay) {
  Json config = fixture_config("llama2");
  config["eos_token_id"] = {5, 6};
  const HfConfig before = config_from_hf(config, "llama2");
  const Json exported = config_to_hf(*before.family, before.model, "bfloat16", config);
  EXPECT_EQ(exported["eos_token_id"], Json({5, 6}));
  EXPECT_EQ(exported["torch_dtype"], "bfloat16");
  EXPECT_FALSE(exported.contains("rope_parameters"));  // both ways at once could contradict
}

TEST(HfConfig, ValuesBecomeOurOptions) {
  const TransformerConfig llama = imported(fixture_config("llama3"));
  EXPECT_EQ(llama.num_layers, 2);
  EXPECT_EQ(llama.query_groups(), 2);
  EXPECT_EQ(llama.head_dim(), 8);
  EXPECT_TRUE(llama.use_rope_scaling);
  EXPECT_EQ(llama.rope_scaling_factor, 4);
  EXPECT_EQ(llama.rope_scaling_original_max_position_embeddings, 16);
  EXPECT_FALSE(llama.untie_embeddings_and_output_weights);
  EXPECT_FALSE(llama.add_bias_linear);

  const TransformerConfig gemma = imported(fixture_config("gemma3"));
  EXPECT_EQ(gemma.layer_window(0), (WindowSize{5, 0}));
  EXPECT_EQ(gemma.layer_window(2), std::nullopt);  // every third
  EXPECT_EQ(gemma.layer_rotary_base(0), 10000);
  EXPECT_EQ(gemma.layer_rotary_base(2), 1000000);
  EXPECT_EQ(gemma.embedding_scale, 4.0);
  EXPECT_EQ(gemma.query_scale, 12.0);

  const TransformerConfig gpt2 = imported(fixture_config("gpt2"));
  EXPECT_EQ(gpt2.ffn_size(), 64);  // n_inner null: four times the width
  EXPECT_EQ(gpt2.max_position_embeddings, 32);
}

TEST(HfConfig, ValuesAboutExpertsBecomeOurOptions) {
  const TransformerConfig mixtral = imported(fixture_config("mixtral"));
  EXPECT_EQ(mixtral.moe.num_experts, 4);
  EXPECT_EQ(mixtral.moe.moe_router_topk, 2);
  EXPECT_EQ(mixtral.expert_size(), 24);
  EXPECT_FALSE(mixtral.moe.moe_router_pre_softmax);
  EXPECT_EQ(mixtral.layer_window(1), (WindowSize{6, 0}));

  const TransformerConfig qwen2 = imported(fixture_config("qwen2_moe"));
  EXPECT_EQ(qwen2.moe.num_experts, 6);
  EXPECT_EQ(qwen2.moe.moe_router_topk, 3);
  EXPECT_EQ(qwen2.expert_size(), 12);
  EXPECT_EQ(qwen2.ffn_size(), 24);  // of the second layer, which has no experts
  EXPECT_TRUE(qwen2.moe.has_experts(0) && !qwen2.moe.has_experts(1) && qwen2.moe.has_experts(2));
  EXPECT_TRUE(qwen2.moe.moe_router_pre_softmax);
  EXPECT_TRUE(qwen2.add_qkv_bias);
  EXPECT_EQ(qwen2.moe.moe_shared_expert_intermediate_size, 20);
  EXPECT_TRUE(qwen2.moe.moe_shared_expert_gate);
  EXPECT_EQ(qwen2.moe.coefficient("aux_loss"), 0.001);

  const TransformerConfig qwen3 = imported(fixture_config("qwen3_moe"));
  EXPECT_TRUE(!qwen3.moe.has_experts(0) && qwen3.moe.has_experts(1) && !qwen3.moe.has_experts(2));
  EXPECT_FALSE(qwen3.moe.moe_router_pre_softmax);
  EXPECT_FALSE(qwen3.moe.moe_shared_expert_intermediate_size.has_value());
}

TEST(HfConfig, TheNumberOfQwen3sExpertsHasTwoNames) {
  Json config = fixture_config("qwen3_moe");  // "num_local_experts"
  config["num_experts"] = 6;
  EXPECT_EQ(imported(config).moe.num_experts, 6);
  config.erase("num_local_experts");
  EXPECT_EQ(imported(config).moe.num_experts, 6);
  config["num_local_experts"] = 4;
  EXPECT_THAT(refusal(config), HasSubstr("\"num_experts\" is 6 and \"num_local_experts\" 4"));
  const HfConfig before = config_from_hf(fixture_config("qwen3_moe"), "x");
  const Json exported =
      config_to_hf(*before.family, before.model, "float32", fixture_config("qwen3_moe"));
  EXPECT_EQ(exported["num_experts"], 6);
  EXPECT_FALSE(exported.contains("num_local_experts"));
}

TEST(HfConfig, AnExpertsWidthMayComeFromEitherFlag) {
  TransformerConfig model = imported(fixture_config("mixtral"));
  model.ffn_hidden_size = 24;  // Megatron's way: experts are as wide as an MLP
  model.moe.moe_ffn_hidden_size.reset();
  const Family& family = family_for(model);
  EXPECT_STREQ(family.name, "mixtral");
  EXPECT_EQ(config_to_hf(family, model, "float32", Json())["intermediate_size"], 24);
  model.ffn_hidden_size = 96;  // idle
  model.moe.moe_ffn_hidden_size = 40;
  EXPECT_EQ(config_to_hf(family_for(model), model, "float32", Json())["intermediate_size"], 40);
}

TEST(HfConfig, AMissingKeyHasTheLibrarysDefault) {
  Json config = fixture_config("gemma2");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "layer_types",
                          "rope_parameters", "tie_word_embeddings", "sliding_window"})
    config.erase(key);
  const TransformerConfig model = imported(config);
  EXPECT_EQ(model.attn_logit_softcapping, 50);
  EXPECT_EQ(model.final_logit_softcapping, 30);
  EXPECT_EQ(model.layer_window(0), (WindowSize{4095, 0}));
  EXPECT_EQ(model.layer_window(1), std::nullopt);
  EXPECT_EQ(model.rotary_base, 10000);
  EXPECT_FALSE(model.untie_embeddings_and_output_weights);
}

TEST(HfConfig, WhatIsNotComputedHereIsNamed) {
  struct Case {
    const char* fixture;
    Json change;
    const char* message;
  };
  const Case cases[] = {
      {"llama2",
       {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}, {"rope_parameters", nullptr}},
       "rope scaling of type \"dynamic\" is not computed here"},
      {"llama2", {{"attention_bias", true}}, "\"attention_bias\" is 1 and \"mlp_bias\" 0"},
      {"llama2", {{"hidden_act", "gelu"}}, "\"hidden_act\" is \"gelu\""},
      {"llama2", {{"quantization_config", {{"bits", 4}}}}, "quantized weights are not read"},
      {"llama2", {{"num_key_value_heads", 3}}, "does not divide --num-attention-heads 4"},
      {"llama2", {{"num_hidden_layers", "two"}}, "num_layers two"},
      {"llama2", {{"hidden_size", nullptr}}, "hidden"},
      {"qwen3", {{"attention_bias", true}}, "\"attention_bias\" is true"},
      {"gpt2", {{"activation_function", "relu"}}, "\"activation_function\" is \"relu\""},
      {"gpt2", {{"scale_attn_by_inverse_layer_idx", true}}, "scale_attn_by_inverse_layer_idx"},
      {"qwen2_yarn",
       {{"rope_parameters",
         {{"rope_type", "yarn"}, {"factor", 4.0}, {"rope_theta", 1e4}, {"attention_factor", 1.0}}}},
       "\"attention_factor\" is 1"},
      {"gemma2",
       {{"layer_types", {"sliding_attention", "chunked_attention"}}},
       "\"layer_types\" holds \"chunked_attention\""},
      {"gemma3", {{"use_bidirectional_attention", true}}, "use_bidirectional_attention"},
      {"mixtral", {{"router_jitter_noise", 0.1}}, "\"router_jitter_noise\" is 0.1"},
      {"mixtral", {{"num_local_experts", nullptr}}, "the number of experts is null"},
      {"mixtral", {{"num_experts_per_tok", 5}}, "--moe-router-topk 5 is more than"},
      {"qwen2_moe", {{"use_sliding_window", true}}, "\"use_sliding_window\" is true"},
      {"qwen3_moe", {{"decoder_sparse_step", 0}}, "\"decoder_sparse_step\" is 0"},
      {"olmoe", {{"clip_qkv", 8.0}}, "\"clip_qkv\" is 8"},
      {"deepseek_v2",
       {{"topk_method", "group_limited_greedy"}, {"n_group", 3}, {"topk_group", 1}},
       "cannot give --moe-router-topk 3 experts"},
      {"deepseek_v3",
       {{"n_group", 8}, {"topk_group", 4}, {"num_experts_per_tok", 3}},
       "--moe-router-group-best 2 is more than the 1 experts of a group"},
      {"deepseek_v3", {{"rope_interleave", false}}, "\"rope_interleave\" is false"},
      {"deepseek_v3", {{"rms_norm_eps", 1e-5}}, "\"rms_norm_eps\" is 1e-05"},
      {"deepseek_v3", {{"num_key_value_heads", 2}}, "every query head has a key head of its own"},
      {"deepseek_v3",
       {{"quantization_config", {{"quant_method", "fp8"}}}},
       "but for FP8 (e4m3) with a \"weight_block_size\""},
  };
  for (const Case& test : cases) {
    Json config = fixture_config(test.fixture);
    config.update(test.change);
    EXPECT_THAT(refusal(config), AllOf(HasSubstr("config.json ("), HasSubstr(test.message)));
  }
}

TEST(HfConfig, EverythingWrongIsToldAtOnce) {
  Json config = fixture_config("llama2");
  config.erase("hidden_size");
  config["hidden_act"] = "relu";
  EXPECT_THAT(refusal(config), AllOf(HasSubstr("\"hidden_size\" is missing"), HasSubstr("relu")));
}

TEST(HfConfig, UnknownKeysAreReportedNotRefused) {
  Json config = fixture_config("qwen3");
  config["special_trick"] = 3;
  EXPECT_EQ(config_from_hf(config, "x").unread, (Texts{"special_trick"}));
}

// Whoever wrote the file: a model, or an error of ours; nothing else comes out.
TEST(HfConfig, AnyValueOfAnyKeyIsTakenOrRefused) {
  const Json values[] = {nullptr,
                         true,
                         -1,
                         0,
                         3,
                         1e300,
                         1.5,
                         int64_t{1} << 62,
                         "x",
                         "",
                         Json::array(),
                         Json::array({1, "x", nullptr}),
                         Json::object(),
                         {{"rope_type", "yarn"}, {"factor", "x"}},
                         {{"rope_type", "llama3"}},
                         {{"full_attention", 3}}};
  int taken = 0, refused = 0;
  for (const char* name : kHfFixtures) {
    const Json config = fixture_config(name);
    Json keys = config;
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "layer_types",
                            "sliding_window", "head_dim", "num_key_value_heads"})
      keys[key] = nullptr;
    for (const auto& [key, unused] : keys.items()) {
      for (const Json& value : values) {
        Json changed = config;
        changed[key] = value;
        try {
          const HfConfig result = config_from_hf(changed, name);
          config_to_hf(*result.family, result.model, "float32", changed);
          ++taken;
        } catch (const Error&) {
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(taken, 500);
  EXPECT_GT(refused, 500);
}

TEST(HfConfig, AModelThatNoFamilyHasIsRefusedWithTheDifference) {
  TransformerConfig model = imported(fixture_config("llama2"));
  model.squared_relu = true;
  model.swiglu = false;
  EXPECT_THAT(error_of([&] { family_for(model); }),
              AllOf(HasSubstr("no family of Hugging Face has this model"),
                    HasSubstr("--squared-relu: true and false")));
}

}  // namespace
}  // namespace phx
