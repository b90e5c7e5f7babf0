#include "phalanx/verify/shrink_layers.h"

#include <gtest/gtest.h>

#include "verify/large_run.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(ShrinkLayers, KeepsTheKindsOfStages) {
  RunConfig config = large_run();
  const auto pieces = [&] {
    const SmallRun small = shrink(config, kWorld);
    expect_valid(small, "stages");
    std::string text;
    const Placement placement = make_layout(small.config.layout(), small.world).placement;
    for (int chunk = 0; chunk < placement.chunks; ++chunk)
      for (int rank = 0; rank < placement.stages; ++rank)
        text += std::to_string(placement.at(rank, chunk).num_layers);
    return text;
  };
  ParallelConfig& ranks = config.parallel;
  ranks.num_virtual_stages_per_pipeline_rank = 5;
  EXPECT_EQ(pieces(), "11111111");
  ranks.num_virtual_stages_per_pipeline_rank = {};
  ranks.num_layers_per_virtual_pipeline_stage = 2;
  EXPECT_EQ(pieces(), "11111111");
  ranks.num_layers_per_virtual_pipeline_stage = {};
  ranks.decoder_first_pipeline_num_layers = 10 - 3;
  ranks.decoder_last_pipeline_num_layers = 10 + 3;
  EXPECT_EQ(pieces(), "1222");
  ranks.decoder_first_pipeline_num_layers = 17;
  ranks.decoder_last_pipeline_num_layers = {};
  EXPECT_EQ(pieces(), "2111");
  ranks.decoder_first_pipeline_num_layers = {};
  config.model.num_layers = 78;
  ranks.account_for_embedding_in_pipeline_split = true;
  ranks.account_for_loss_in_pipeline_split = true;
  EXPECT_EQ(pieces(), "1221");
  config.model.num_layers = 80;
  ranks.account_for_embedding_in_pipeline_split = false;
  ranks.account_for_loss_in_pipeline_split = false;
  ranks.pipeline_model_parallel_layout = "Et*10|t*12|(t*12|)*4t*10|L";
  EXPECT_EQ(pieces(), "1220");
  ranks.pipeline_model_parallel_layout = "E|(ttt|)*14t*38L";
  EXPECT_EQ(pieces(), "01111112");
}

TEST(ShrinkLayers, KeepsWhereTokensAheadArePredicted) {
  RunConfig config = large_run();
  config.model.mtp_num_layers = 3;
  const auto layout = [&](const char* text) {
    config.parallel.pipeline_model_parallel_layout = text;
    const SmallRun small = shrink(config, kWorld);
    expect_valid(small, text);
    EXPECT_EQ(small.config.model.mtp_num_layers, 2);
    return small.config.parallel.pipeline_model_parallel_layout;
  };
  EXPECT_EQ(layout("E|t*10|t*12|(t*12|)*4t*10mmmL"), "E|t|tt|tmmL");
  EXPECT_EQ(layout("Et*10|t*12|(t*12|)*4t*10mmm|L"), "Et|tt|ttmm|L");
}

TEST(ShrinkLayers, LayersThatDifferStillDo) {
  RunConfig config = large_run();
  config.model.window_size = WindowSize{4095, 0};
  config.model.window_attn_skip_freq = FrequencyPattern::every_nth(6);
  std::vector<int64_t> no_rope(80, 0);
  no_rope[79] = 1;
  config.model.no_rope_freq = FrequencyPattern::of(no_rope);
  const TransformerConfig small = shrink(config, kWorld).config.model;
  ASSERT_EQ(small.num_layers, 4);
  EXPECT_EQ(small.window_size->left, 2);
  EXPECT_TRUE(small.layer_window(0));
  EXPECT_FALSE(small.layer_window(1));
  EXPECT_TRUE(small.layer_uses_rope(0));
  EXPECT_FALSE(small.layer_uses_rope(3));
  config.model.window_size = WindowSize{8191, 0};  // all of the sequence
  EXPECT_GE(shrink(config, kWorld).config.model.window_size->left, small.seq_length);
}

RunConfig on_stages(int64_t layers, int stages) {
  RunConfig config;
  config.model.num_layers = layers;
  config.parallel.pipeline_model_parallel_size = stages;
  return config;
}

int64_t recomputed_of(int64_t recomputed, int stages) {
  RunConfig config = on_stages(32, 4);
  config.train.recompute_num_layers = recomputed;
  shrink_layers(config, place_layers({.num_layers = 32, .stages = 4}), stages);
  return *config.train.recompute_num_layers;
}

TEST(ShrinkLayers, AllLayersOrSomeAreRecomputedAsBefore) {
  EXPECT_EQ(recomputed_of(8, 2), 2) << "all layers of a stage, of which there are two now";
  EXPECT_EQ(recomputed_of(3, 2), 1) << "some of them";
  EXPECT_EQ(recomputed_of(1, 2), 1);
  EXPECT_EQ(recomputed_of(8, 4), 1);
}

TEST(ShrinkLayers, OneStageHasAFewLayers) {
  RunConfig config = on_stages(80, 1);
  shrink_layers(config, place_layers({.num_layers = 80}), 1);
  EXPECT_EQ(config.model.num_layers, 4);
  config.model.num_layers = 3;
  shrink_layers(config, place_layers({.num_layers = 3}), 1);
  EXPECT_EQ(config.model.num_layers, 3) << "never more than there were";
}

}  // namespace
}  // namespace phx
