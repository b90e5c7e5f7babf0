#include "phalanx/parallel/pipeline/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using Layers = std::vector<int>;

std::vector<std::vector<Layers>> layers_of(const PlacementConfig& config) {
  std::vector<std::vector<Layers>> result;
  for (const auto& chunks : place_layers(config).ranks) {
    result.emplace_back();
    for (const ChunkPlacement& chunk : chunks) result.back().push_back(chunk.layers());
  }
  return result;
}

std::string refusal(const PlacementConfig& config) {
  return error_of([&] { place_layers(config); });
}

TEST(Placement, OneStageHoldsEverything) {
  const Placement placement = place_layers({.num_layers = 3});
  EXPECT_EQ(
      placement.at(0, 0),
      (ChunkPlacement{.first_layer = 0, .num_layers = 3, .has_embedding = true, .has_loss = true}));
}

TEST(Placement, EvenStagesHoldNeighbouringLayers) {
  EXPECT_THAT(layers_of({.num_layers = 8, .stages = 4}),
              ElementsAre(ElementsAre(Layers{0, 1}), ElementsAre(Layers{2, 3}),
                          ElementsAre(Layers{4, 5}), ElementsAre(Layers{6, 7})));
}

TEST(Placement, ChunksGoAroundTheRanks) {
  const PlacementConfig config{.num_layers = 8, .stages = 2, .chunks = 2};
  EXPECT_THAT(layers_of(config), ElementsAre(ElementsAre(Layers{0, 1}, Layers{4, 5}),
                                             ElementsAre(Layers{2, 3}, Layers{6, 7})));
  const Placement placement = place_layers(config);
  for (int rank = 0; rank < 2; ++rank)
    for (int chunk = 0; chunk < 2; ++chunk) {
      EXPECT_EQ(placement.at(rank, chunk).has_embedding, rank == 0 && chunk == 0);
      EXPECT_EQ(placement.at(rank, chunk).has_loss, rank == 1 && chunk == 1);
    }
}

TEST(Placement, LayersAChunkSayHowManyChunksThereAre) {
  const PlacementConfig config{.num_layers = 16, .stages = 2, .layers_per_chunk = 2};
  EXPECT_EQ(place_layers(config).chunks, 4);
  EXPECT_EQ(layers_of(config), layers_of({.num_layers = 16, .stages = 2, .chunks = 4}));
}

TEST(Placement, FirstAndLastStageMayHaveTheirOwnSizes) {
  EXPECT_THAT(
      layers_of({.num_layers = 9, .stages = 4, .first_stage_layers = 2, .last_stage_layers = 1}),
      ElementsAre(ElementsAre(Layers{0, 1}), ElementsAre(Layers{2, 3, 4}),
                  ElementsAre(Layers{5, 6, 7}), ElementsAre(Layers{8})));
  EXPECT_THAT(
      layers_of({.num_layers = 5, .stages = 3, .last_stage_layers = 1}),
      ElementsAre(ElementsAre(Layers{0, 1}), ElementsAre(Layers{2, 3}), ElementsAre(Layers{4})));
}

TEST(Placement, UnevenStagesAreCutIntoChunksEachByItself) {
  EXPECT_THAT(layers_of({.num_layers = 14,
                         .stages = 3,
                         .chunks = 2,
                         .first_stage_layers = 2,
                         .last_stage_layers = 4}),
              ElementsAre(ElementsAre(Layers{0}, Layers{7}),
                          ElementsAre(Layers{1, 2, 3, 4}, Layers{8, 9, 10, 11}),
                          ElementsAre(Layers{5, 6}, Layers{12, 13})));
}

TEST(Placement, EmbeddingAndLossMayCountAsALayer) {
  EXPECT_THAT(
      layers_of(
          {.num_layers = 6, .stages = 4, .account_for_embedding = true, .account_for_loss = true}),
      ElementsAre(ElementsAre(Layers{0}), ElementsAre(Layers{1, 2}), ElementsAre(Layers{3, 4}),
                  ElementsAre(Layers{5})));
  EXPECT_THAT(
      layers_of({.num_layers = 7, .stages = 2, .chunks = 2, .account_for_loss = true}),
      ElementsAre(ElementsAre(Layers{0, 1}, Layers{4, 5}), ElementsAre(Layers{2, 3}, Layers{6})));
}

TEST(Placement, APieceMayBeTheEmbeddingAlone) {
  const Placement placement =
      place_layers({.num_layers = 1, .stages = 2, .account_for_embedding = true});
  EXPECT_EQ(placement.at(0, 0).num_layers, 0);
  EXPECT_TRUE(placement.at(0, 0).has_embedding);
  EXPECT_THAT(placement.at(1, 0).layers(), ElementsAre(0));
}

TEST(Placement, ALayoutOfDeepSeekV3) {
  const Placement placement = place_layers(
      {.num_layers = 61, .stages = 16, .layout = "Et*3|(tt|)*29,m|L", .num_mtp_layers = 1});
  EXPECT_EQ(placement.chunks, 2);
  EXPECT_THAT(placement.at(0, 0).layers(), ElementsAre(0, 1, 2));
  EXPECT_THAT(placement.at(1, 0).layers(), ElementsAre(3, 4));
  EXPECT_THAT(placement.at(0, 1).layers(), ElementsAre(33, 34));
  EXPECT_EQ(placement.at(14, 1), (ChunkPlacement{.first_layer = 61, .num_mtp_layers = 1}));
  EXPECT_EQ(placement.at(15, 1), (ChunkPlacement{.first_layer = 61, .has_loss = true}));
}

TEST(Placement, ALayoutMayHaveAnEmptyStage) {
  EXPECT_THAT(layers_of({.num_layers = 2, .stages = 4, .layout = "E||t|tL"}),
              ElementsAre(ElementsAre(Layers{}), ElementsAre(Layers{}), ElementsAre(Layers{0}),
                          ElementsAre(Layers{1})));
}

TEST(Placement, EveryLayerLiesOnceAndInOrder) {
  for (int stages : {1, 2, 3, 4, 8})
    for (int chunks : {1, 2, 3})
      for (int per_chunk : {1, 2, 5}) {
        if (stages == 1 && chunks > 1) continue;
        const Placement placement = place_layers(
            {.num_layers = stages * chunks * per_chunk, .stages = stages, .chunks = chunks});
        int next = 0;
        for (int chunk = 0; chunk < chunks; ++chunk)
          for (int rank = 0; rank < stages; ++rank)
            for (const int layer : placement.at(rank, chunk).layers()) EXPECT_EQ(layer, next++);
        EXPECT_EQ(next, stages * chunks * per_chunk);
      }
}

TEST(Placement, RefusesLayersThatStagesCannotShare) {
  EXPECT_EQ(refusal({.num_layers = 30, .stages = 4}),
            "--num-layers 30 is not a multiple of --pipeline-model-parallel-size 4\n"
            "  hint: 28 and 32 layers would do, or 3 and 5 stages");
  EXPECT_EQ(
      refusal(
          {.num_layers = 32, .stages = 4, .account_for_embedding = true, .account_for_loss = true}),
      "--num-layers 32 + 1 for the embedding + 1 for the loss = 34 is not a multiple of "
      "--pipeline-model-parallel-size 4\n"
      "  hint: 30 and 34 layers would do, or 2 and 17 stages");
  EXPECT_EQ(refusal({.num_layers = 2, .stages = 4}),
            "--num-layers 2 is not a multiple of --pipeline-model-parallel-size 4\n"
            "  hint: 4 layers would do, or 2 stages");
}

TEST(Placement, RefusesStagesThatChunksCannotShare) {
  EXPECT_EQ(refusal({.num_layers = 32, .stages = 4, .chunks = 3}),
            "a stage's 8 layers are not a multiple of --num-virtual-stages-per-pipeline-rank 3\n"
            "  hint: 2 and 4 chunks would do, or stages of 6 and 9 layers");
  EXPECT_EQ(refusal({.num_layers = 32, .stages = 4, .layers_per_chunk = 3}),
            "the 8 layers of a stage are not a multiple of "
            "--num-layers-per-virtual-pipeline-stage 3\n  hint: 2 and 4 would do");
  EXPECT_EQ(refusal({.num_layers = 7,
                     .stages = 2,
                     .chunks = 2,
                     .first_stage_layers = 3,
                     .last_stage_layers = 4}),
            "the first stage's 3 layers are not a multiple of "
            "--num-virtual-stages-per-pipeline-rank 2\n"
            "  hint: 1 and 3 chunks would do, or stages of 2 and 4 layers");
}

TEST(Placement, RefusesUnevenStagesThatLeaveTheWrongRest) {
  EXPECT_EQ(refusal({.num_layers = 10, .stages = 4, .first_stage_layers = 3}),
            "--num-layers 10 - --decoder-first-pipeline-num-layers 3 leaves 7 layers for the other "
            "3 stages, which share them evenly\n  hint: 9 and 12 layers would do");
  EXPECT_EQ(
      refusal({.num_layers = 4, .stages = 3, .first_stage_layers = 2, .last_stage_layers = 2}),
      "--num-layers 4 - --decoder-first-pipeline-num-layers 2 - "
      "--decoder-last-pipeline-num-layers 2 leaves 0 layers for the other 1 stage, which "
      "share them evenly\n  hint: 5 layers would do");
  EXPECT_EQ(
      refusal({.num_layers = 7, .stages = 2, .first_stage_layers = 3, .last_stage_layers = 3}),
      "--num-layers 7 - --decoder-first-pipeline-num-layers 3 - "
      "--decoder-last-pipeline-num-layers 3 leaves 1 layer, but no stage is between\n"
      "  hint: use --num-layers 6, or more stages");
}

TEST(Placement, RefusesTwoWaysToSayTheSame) {
  EXPECT_EQ(
      refusal({.num_layers = 4, .stages = 2, .first_stage_layers = 2, .account_for_loss = true}),
      "--decoder-first-pipeline-num-layers and --account-for-loss-in-pipeline-split exclude "
      "each other: both say how many layers the first and last stage have\n"
      "  hint: leave out --account-for-loss-in-pipeline-split");
  EXPECT_EQ(placement_problems({.num_layers = 4,
                                .stages = 2,
                                .chunks = 2,
                                .first_stage_layers = 2,
                                .account_for_loss = true,
                                .layout = "Ett|ttL"})
                .size(),
            4u);  // the layout against three others, and the other pair
  EXPECT_EQ(refusal({.num_layers = 4, .chunks = 2}),
            "--num-virtual-stages-per-pipeline-rank needs several stages, but "
            "--pipeline-model-parallel-size is 1\n"
            "  hint: leave out --num-virtual-stages-per-pipeline-rank, or set "
            "--pipeline-model-parallel-size to 2 or more");
  EXPECT_EQ(refusal({.num_layers = 4, .stages = 0}),
            "--pipeline-model-parallel-size 0 should be at least 1\n  hint: use 1 or more");
}

TEST(Placement, RefusesLayoutsOfAnotherModel) {
  const auto layout = [](const std::string& text, int mtp = 0) {
    return refusal({.num_layers = 4, .stages = 2, .layout = text, .num_mtp_layers = mtp});
  };
  const std::string flag = "--pipeline-model-parallel-layout ";
  EXPECT_EQ(layout("Ett|tL"), flag + "\"Ett|tL\" has 3 t, but --num-layers is 4\n  hint: add 1 t");
  EXPECT_EQ(layout("tt|ttL"),
            flag + "\"tt|ttL\" has 0 E, but a model has one embedding\n  hint: add 1 E");
  EXPECT_EQ(layout("Ett|ttL|L"),
            flag + "\"Ett|ttL|L\" has 2 L, but a model has one loss\n  hint: remove 1 L\n" + flag +
                "\"Ett|ttL|L\" has 3 stages, not a multiple of --pipeline-model-parallel-size 2\n"
                "  hint: 2 and 4 are the nearest that are");
  EXPECT_EQ(layout("tE|tttL"),
            flag + "\"tE|tttL\" does not begin with E\n  hint: move E to the front");
  EXPECT_EQ(layout("Ett|Ltt"), flag + "\"Ett|Ltt\" does not end with L\n  hint: move L to the end");
  EXPECT_EQ(layout("Ettm|ttL", 1),
            flag + "\"Ettm|ttL\" has t after m\n  hint: put all m after the last t");
  EXPECT_EQ(layout("Ettttm|mL", 2),
            flag + "\"Ettttm|mL\" has m in several stages\n  hint: put all m into one stage");
}

TEST(Placement, TheStagesWithTheEmbedding) {
  const Placement deepseek = place_layers(
      {.num_layers = 61, .stages = 16, .layout = "Et*3|(tt|)*29,m|L", .num_mtp_layers = 1});
  EXPECT_EQ(deepseek.mtp_stage(), 14);
  EXPECT_THAT(deepseek.embedding_stages(/*tied=*/false), ElementsAre(0, 14));
  EXPECT_THAT(deepseek.embedding_stages(/*tied=*/true), ElementsAre(0, 14, 15));
  const Placement last = place_layers({.num_layers = 4, .stages = 2, .num_mtp_layers = 1});
  EXPECT_THAT(last.embedding_stages(/*tied=*/false), ElementsAre(0, 1));
  const Placement none = place_layers({.num_layers = 4, .stages = 2});
  EXPECT_EQ(none.mtp_stage(), std::nullopt);
  EXPECT_THAT(none.embedding_stages(/*tied=*/false), ElementsAre(0));
  EXPECT_THAT(none.embedding_stages(/*tied=*/true), ElementsAre(0, 1));
}

TEST(Placement, ARankHasOneCopyOfTheEmbedding) {
  const auto layout = [](const std::string& text, int stages, bool table = false) {
    return refusal({.num_layers = 4,
                    .stages = stages,
                    .layout = text,
                    .num_mtp_layers = 1,
                    .position_table = table});
  };
  const std::string flag = "--pipeline-model-parallel-layout ";
  const std::string hint = "\n  hint: put m into the stage with L";
  EXPECT_EQ(layout("Ett|t|tm|L", 2),
            flag +
                "\"Ett|t|tm|L\" has m in stage 2, on pipeline rank 0, which has the embedding or "
                "the loss in another stage" +
                hint);
  EXPECT_EQ(layout("Ett|ttm||L", 2),
            flag +
                "\"Ett|ttm||L\" has m in stage 1, on pipeline rank 1, which has the embedding or "
                "the loss in another stage" +
                hint);
  EXPECT_EQ(layout("Ett|ttm|L", 3, /*table=*/true),
            flag +
                "\"Ett|ttm|L\" has m in a stage without L, but learned positions can be shared "
                "by two stages only" +
                hint);
  EXPECT_TRUE(
      placement_problems({.num_layers = 4, .stages = 3, .layout = "Ett|ttm|L", .num_mtp_layers = 1})
          .empty());
}

}  // namespace
}  // namespace phx
