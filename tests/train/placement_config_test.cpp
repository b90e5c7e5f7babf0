#include "phalanx/train/placement_config.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

TEST(PlacementConfig, HasTheFlagsThatDivideTheLayers) {
  TransformerConfig model;
  model.num_layers = 10;
  model.mtp_num_layers = 2;
  model.position_embedding_type = PositionEmbedding::learned_absolute;
  ParallelConfig ranks;
  ranks.pipeline_model_parallel_size = 4;
  ranks.num_virtual_stages_per_pipeline_rank = 2;
  ranks.decoder_first_pipeline_num_layers = 1;
  ranks.decoder_last_pipeline_num_layers = 3;
  ranks.account_for_loss_in_pipeline_split = true;
  const PlacementConfig config = placement_config(model, ranks);
  EXPECT_EQ(config.num_layers, 10);
  EXPECT_EQ(config.stages, 4);
  EXPECT_EQ(config.chunks, 2);
  EXPECT_EQ(config.first_stage_layers, 1);
  EXPECT_EQ(config.last_stage_layers, 3);
  EXPECT_FALSE(config.layers_per_chunk);
  EXPECT_FALSE(config.account_for_embedding);
  EXPECT_TRUE(config.account_for_loss);
  EXPECT_EQ(config.num_mtp_layers, 2);
  EXPECT_TRUE(config.position_table);
}

TEST(PlacementConfig, WithoutFlagsARankHasOneChunk) {
  TransformerConfig model;
  model.position_embedding_type = PositionEmbedding::rope;
  const PlacementConfig config = placement_config(model, {});
  EXPECT_EQ(config.stages, 1);
  EXPECT_EQ(config.chunks, 1);
  EXPECT_FALSE(config.position_table);
}

}  // namespace
}  // namespace phx
