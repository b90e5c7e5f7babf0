#include "phalanx/convert/function_differences.h"

#include <gtest/gtest.h>

#include "convert/hf_fixtures.h"

namespace phx {
namespace {

using Texts = std::vector<std::string>;

TEST(FunctionDifferences, TwoWaysOfSayingTheSameDoNotDiffer) {
  TransformerConfig a = imported(fixture_config("gemma2")), b = a;
  a.window_attn_skip_freq = FrequencyPattern::every_nth(2);
  b.window_attn_skip_freq = FrequencyPattern::of({1, 0});
  b.attention_dropout = 0.3;
  b.seq_length = 8;
  b.padded_vocab_size = 128;
  EXPECT_EQ(function_differences(a, b), Texts());
  b.rotary_base = 20000;
  EXPECT_EQ(function_differences(a, b), (Texts{"--rotary-base: 10000 and 20000"}));

  a = b = imported(fixture_config("qwen3_moe"));
  a.moe.moe_layer_freq = FrequencyPattern::of({0, 1, 0, 1});
  b.moe.moe_aux_loss_coeff = {0.5};
  b.moe.moe_token_dispatcher_type = TokenDispatcherType::alltoall;
  EXPECT_EQ(function_differences(a, b), Texts());
  b.moe.moe_layer_freq = FrequencyPattern::of({0, 1, 1, 1});
  EXPECT_EQ(function_differences(a, b).size(), 1u);

  a = b = imported(fixture_config("deepseek_v3"));  // biases of experts are compared as tensors
  EXPECT_TRUE(a.moe.moe_router_enable_expert_bias);
  b.moe.moe_router_enable_expert_bias = false;
  EXPECT_EQ(function_differences(a, b), Texts());
}

TEST(FunctionDifferences, EveryChangeOfTheFunctionIsNamedWithBothValues) {
  const TransformerConfig a = imported(fixture_config("llama2"));
  const auto differ = [&](auto&& change) {
    TransformerConfig b = a;
    change(b);
    return function_differences(a, b);
  };
  EXPECT_EQ(differ([](TransformerConfig& c) { c.num_layers = 3; }),
            (Texts{"--num-layers: 2 and 3"}));
  EXPECT_EQ(differ([](TransformerConfig& c) { c.query_scale = 7; }),
            (Texts{"--query-scale: unset and 7"}));
  EXPECT_EQ(differ([](TransformerConfig& c) { c.swiglu = false; }).empty(), false);
  EXPECT_EQ(differ([](TransformerConfig& c) { c.norm_epsilon *= 1.01; }).size(), 1u);
}

TEST(FunctionDifferences, NumbersMayHaveLostDigits) {
  const TransformerConfig a = imported(fixture_config("llama2"));
  TransformerConfig b = a;
  b.norm_epsilon *= 1 + 1e-7;
  EXPECT_EQ(function_differences(a, b), Texts());
  b.norm_epsilon = a.norm_epsilon * (1 + 1e-5);
  EXPECT_EQ(function_differences(a, b).size(), 1u);
}

TEST(FunctionDifferences, WhatNothingReadsDoesNotCount) {
  const TransformerConfig a = imported(fixture_config("gpt2"));  // positions from a table
  TransformerConfig b = a;
  b.rotary_base = 777;
  b.rope_scaling_factor = 9;
  b.mscale = 3;
  b.query_scale = double(b.head_dim());
  b.embedding_scale = 1.0;
  EXPECT_EQ(function_differences(a, b), Texts());
  b.max_position_embeddings += 1;  // the table has another row
  EXPECT_EQ(function_differences(a, b).size(), 1u);
}

}  // namespace
}  // namespace phx
