#include "phalanx/train/older_checkpoints.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace phx {
namespace {

using nlohmann::json;

TEST(OlderCheckpoints, GeluWasExactBeforeItWasAnOption) {
  EXPECT_EQ(json::parse(migrated_options("{\"hidden_size\": 64}")),
            json({{"hidden_size", 64}, {"bias_gelu_fusion", false}}));
}

TEST(OlderCheckpoints, WhatWasSavedStaysAsItIs) {
  json options{{"bias_gelu_fusion", true}};
  migrate_options(options);
  EXPECT_EQ(options, json({{"bias_gelu_fusion", true}}));
}

TEST(OlderCheckpoints, ALossScaleCountsOnlyWithFp16) {
  const auto scaler_after = [](const std::string& options) {
    RunState state;
    state.scaler = {1, 0, 0};
    migrate_state(state, options);
    return state.scaler.has_value();
  };
  EXPECT_FALSE(scaler_after("{\"fp16\": false}"));
  EXPECT_TRUE(scaler_after("{\"fp16\": true}"));
  EXPECT_TRUE(scaler_after(""));  // it does not say
}

}  // namespace
}  // namespace phx
