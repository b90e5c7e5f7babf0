#include "phalanx/parallel/data/unit.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

TEST(Unit, ALayerIsOne) {
  EXPECT_EQ(unit_of("decoder.layers.7.mlp.linear_fc1.weight"), "decoder.layers.7");
  EXPECT_EQ(unit_of("decoder.layers.12.mlp.experts.linear_fc1.weight"), "decoder.layers.12");
  EXPECT_EQ(unit_of("mtp.layers.0.transformer_layer.mlp.linear_fc1.weight"), "mtp.layers.0");
}

TEST(Unit, WhatStandsBesideLayersIsOneByItsFirstName) {
  EXPECT_EQ(unit_of("embedding.word_embeddings.weight"), "embedding");
  EXPECT_EQ(unit_of("embedding.position_embeddings.weight"), "embedding");
  EXPECT_EQ(unit_of("decoder.final_layernorm.weight"), "decoder");
  EXPECT_EQ(unit_of("output_layer.weight"), "output_layer");
  EXPECT_EQ(unit_of("bias"), "bias");
}

TEST(Unit, DigitsWithinANameDoNotMakeALayer) {
  EXPECT_EQ(unit_of("head2.linear_fc1.weight"), "head2");
}

}  // namespace
}  // namespace phx
