#include "phalanx/train/recompute_modules.h"

#include <gtest/gtest.h>

#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using Names = std::vector<std::string>;

TEST(RecomputeModules, WhatIsNoPlaceInAPartIsTheNameOfOne) {
  EXPECT_EQ(recomputed_parts({"core_attn", "mlp", "mla_up_proj", "mine"}), (Names{"mlp", "mine"}));
  EXPECT_EQ(recomputed_parts({"layernorm", "activation", "moe_act", "shared_experts"}), Names{});
}

TEST(RecomputeModules, PartsAreThoseOfAnyOfTheModelsLayers) {
  TransformerConfig model = tiny_run().model;
  const auto unknown = [&](const Names& modules) {
    return recompute_problems(default_model(), model, modules).size();
  };
  EXPECT_EQ(unknown({"self_attention", "mlp", "core_attn"}), 0u);
  EXPECT_EQ(unknown({"moe", "mpl"}), 2u);
  model.moe.num_experts = 2;
  model.moe.moe_layer_freq = FrequencyPattern::parse("[0,1,1]");
  EXPECT_EQ(unknown({"mlp", "moe"}), 0u) << "the first layer is dense, the others have experts";
}

}  // namespace
}  // namespace phx
