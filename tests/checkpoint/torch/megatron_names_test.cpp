#include "phalanx/checkpoint/torch/megatron_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TEST(MegatronNames, AxesOfTensorParallelRanks) {
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.self_attention.linear_qkv.weight"), 0);
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.self_attention.linear_proj.weight"), 1);
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.self_attention.linear_proj.bias"), std::nullopt);
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.mlp.linear_fc1.layer_norm_weight"),
            std::nullopt);
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.mlp.experts.linear_fc2.weight11"), 1);
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.self_attention.linear_q_down_proj.weight"),
            std::nullopt);
  EXPECT_EQ(tensor_parallel_axis("embedding.word_embeddings.weight"), 0);
  EXPECT_EQ(tensor_parallel_axis("embedding.position_embeddings.weight"), std::nullopt);
  EXPECT_EQ(tensor_parallel_axis("output_layer.weight"), 0);
}

TEST(MegatronNames, AbsurdAxesAreRefused) {
  EXPECT_THAT(error_of([] {
                parts_of_key("decoder.layers.x", {int64_t{1} << 40, 0});
              }),
              HasSubstr("decoder.layers.x has 1099511627776 layers"));
  EXPECT_THAT(error_of([] { parts_of_key("decoder.layers.mlp.experts.experts.x", {2}); }),
              HasSubstr("should have 2 axes for layers and experts"));
}

TEST(MegatronNames, KeysAreStackedOnlyWhereLayersAreAlike) {
  std::map<std::string, TensorInfo> tensors = {
      {"decoder.layers.0.mlp.linear_fc1.weight", {DType::f32, {4, 2}}},
      {"decoder.layers.1.mlp.linear_fc1.weight", {DType::f32, {4, 2}}},
      {"decoder.final_layernorm.weight", {DType::f32, {2}}}};
  EXPECT_EQ(stacked(tensors).at("decoder.layers.mlp.linear_fc1.weight").info.shape,
            (Dims{2, 4, 2}));
  tensors["decoder.layers.1.mlp.linear_fc1.bias"] = {DType::f32, {4}};
  EXPECT_EQ(stacked(tensors).size(), 4u);
  EXPECT_EQ(stacked(tensors).at("decoder.layers.1.mlp.linear_fc1.weight").info.shape, (Dims{4, 2}));
}

TEST(MegatronNames, AKeyHoldsItsLayersAndExperts) {
  const auto parts =
      parts_of_key("decoder.layers.mlp.experts.experts.linear_fc1.weight", {2, 3, 8});
  ASSERT_EQ(parts.size(), 6u);
  EXPECT_EQ(parts[4].name, "decoder.layers.1.mlp.experts.linear_fc1.weight1");
  EXPECT_EQ(parts[4].index, (Dims{1, 1}));
  // State of the optimizer has our prefix, and the number stands behind it.
  const auto state =
      parts_of_key("optimizer.state.fp32_param.decoder.layers.mlp.linear_fc1.weight", {2, 8});
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[1].name, "optimizer.master.decoder.layers.1.mlp.linear_fc1.weight");
  // Neither state that is cut by data-parallel ranks nor that of 8-bit numbers is of the model.
  EXPECT_TRUE(parts_of_key("optimizer.distributed.dp_group_idx_0.param", {8}).empty());
  EXPECT_TRUE(parts_of_key("decoder.layers.mlp.linear_fc1._extra_state", {2}).empty());
}

TEST(MegatronNames, ExpertsAreStackedBehindTheirLayersAndNoneMayBeMissing) {
  std::map<std::string, TensorInfo> tensors;
  for (const int layer : {0, 1})
    for (const int expert : {0, 1, 2})
      tensors[str_cat("decoder.layers.", layer, ".mlp.experts.linear_fc1.weight", expert)] = {
          DType::f32, {4}};
  const auto whole = stacked(tensors);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole.begin()->first, "decoder.layers.mlp.experts.experts.linear_fc1.weight");
  EXPECT_EQ(whole.begin()->second.info.shape, (Dims{2, 3, 4}));
  for (const int layer : {0, 1})
    tensors.erase(str_cat("decoder.layers.", layer, ".mlp.experts.linear_fc1.weight1"));
  EXPECT_THAT(error_of([&] { stacked(tensors); }),
              HasSubstr("would be [2, 3, 4], but only 4 tensors are there for it"));
}

TEST(MegatronNames, LayersHaveWholeNumbers) {
  const auto number = layer_number("decoder.layers.12.mlp.linear_fc1.weight");
  ASSERT_TRUE(number);
  EXPECT_EQ(number->layer, 12);
  EXPECT_EQ(std::string("decoder.layers.12.mlp").substr(number->begin, 2), "12");
  for (const char* name : {"decoder.layers.mlp.weight", "decoder.layers.-1.x", "decoder.layers.3",
                           "decoder.layers.1x.y", "encoder.layers.1.y"})
    EXPECT_FALSE(layer_number(name)) << name;
}

TEST(MegatronNames, NormsAreFusedAndSeparatedBack) {
  const std::pair<const char*, const char*> names[] = {
      {"input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight"},
      {"pre_mlp_layernorm.bias", "mlp.linear_fc1.layer_norm_bias"},
      {"mlp.linear_fc2.weight", "mlp.linear_fc2.weight"}};
  for (const auto& [separate, fused] : names) {
    EXPECT_EQ(with_fused_norms(separate), fused);
    EXPECT_EQ(with_separate_norms(fused), separate);
  }
}

TEST(MegatronNames, TheSecondLayerOfAnMlpIsFoundFromTheFirst) {
  EXPECT_EQ(fc2_of_fc1("decoder.layers.0.mlp.linear_fc1.weight"),
            "decoder.layers.0.mlp.linear_fc2.weight");
  EXPECT_EQ(fc2_of_fc1("decoder.layers.0.mlp.linear_fc1.bias"),
            "decoder.layers.0.mlp.linear_fc2.weight");
  EXPECT_EQ(fc2_of_fc1("mlp.experts.linear_fc1.weight7"), "mlp.experts.linear_fc2.weight7");
  EXPECT_EQ(fc2_of_fc1("output_layer.weight"), "");
}

TEST(MegatronNames, OnlyEmbeddingAndOutputLayerHaveVocabularyRows) {
  EXPECT_TRUE(has_vocabulary_rows("optimizer.exp_avg.embedding.word_embeddings.weight"));
  EXPECT_TRUE(has_vocabulary_rows("output_layer.weight"));
  EXPECT_FALSE(has_vocabulary_rows("embedding.position_embeddings.weight"));
}

}  // namespace
}  // namespace phx
