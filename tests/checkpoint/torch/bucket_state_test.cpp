#include "phalanx/checkpoint/torch/bucket_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/base/json.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

// One layer with a gated MLP; every part that one of two ranks holds has less than 64 elements, so
// that parameter i from behind begins at element 64 i of the one bucket.
const std::map<std::string, TensorInfo>& model() {
  static const std::map<std::string, TensorInfo> infos = {
      {"embedding.word_embeddings.weight", {DType::bf16, {4, 2}}},
      {"decoder.layers.0.self_attention.linear_proj.weight", {DType::bf16, {2, 2}}},
      {"decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", {DType::bf16, {2}}},
      {"decoder.layers.0.self_attention.linear_qkv.weight", {DType::bf16, {6, 2}}},
      {"decoder.layers.0.mlp.linear_fc1.layer_norm_weight", {DType::bf16, {2}}},
      {"decoder.layers.0.mlp.linear_fc1.weight", {DType::bf16, {8, 2}}},
      {"decoder.layers.0.mlp.linear_fc2.weight", {DType::bf16, {2, 4}}},
      {"decoder.final_layernorm.weight", {DType::bf16, {2}}},
      {"output_layer.weight", {DType::bf16, {4, 2}}}};
  return infos;
}

nlohmann::json run_arguments() {
  return parse_json(R"({"num_layers": 1, "tensor_model_parallel_size": 2,
                        "pipeline_model_parallel_size": 1,
                        "untie_embeddings_and_output_weights": true})");
}

std::string key(int64_t rank, const std::string& state) {
  return str_cat("optimizer.distributed.dp_group_idx_", rank,
                 ".gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.", state);
}

constexpr int64_t kLength = 8 * 64 + 4;  // the embedding's four elements end it

TorchDistMetadata two_ranks() {
  TorchDistMetadata metadata;
  for (const int64_t rank : {0, 1})
    for (const char* state : {"param", "exp_avg", "exp_avg_sq"})
      metadata.tensors[key(rank, state)].info = {DType::f32, {kLength}};
  return metadata;
}

std::map<std::string, std::vector<FlatPart>> parts_of(const TorchDistMetadata& metadata,
                                                      const nlohmann::json& args) {
  return bucket_parts(metadata, model(), args, {NormModules::fused, ExpertModules::sequential});
}

TEST(BucketState, ParametersLieFromTheLastToTheFirst) {
  const TorchDistMetadata metadata = two_ranks();
  ASSERT_TRUE(has_bucket_state(metadata));
  const auto parts = parts_of(metadata, run_arguments());
  EXPECT_EQ(parts.size(), 3 * model().size());
  const auto& output = parts.at("optimizer.exp_avg.output_layer.weight");
  ASSERT_EQ(output.size(), 2u);  // a half from each rank
  EXPECT_EQ(output[0].begin, 0);
  EXPECT_EQ(output[0].flat, &metadata.tensors.at(key(0, "exp_avg")));
  EXPECT_EQ(output[1].flat, &metadata.tensors.at(key(1, "exp_avg")));
  EXPECT_EQ(output[1].box, (Box{{2, 0}, {2, 2}}));
  EXPECT_EQ(parts.at("optimizer.master.embedding.word_embeddings.weight")[0].begin, 8 * 64);
  // Columns of fc2 are cut, rows of the others.
  EXPECT_EQ(parts.at("optimizer.master.decoder.layers.0.mlp.linear_fc2.weight")[1].box,
            (Box{{0, 2}, {2, 2}}));
  // All ranks have the norm; the first one's counts.
  const auto& norm = parts.at("optimizer.exp_avg_sq.decoder.final_layernorm.weight");
  ASSERT_EQ(norm.size(), 1u);
  EXPECT_EQ(norm[0].begin, 64);
}

TEST(BucketState, ARankHasItsShareOfTheGateAndThenOfTheRest) {
  const TorchDistMetadata metadata = two_ranks();
  const auto parts = parts_of(metadata, run_arguments());
  const auto& fc1 = parts.at("optimizer.master.decoder.layers.0.mlp.linear_fc1.weight");
  ASSERT_EQ(fc1.size(), 4u);
  EXPECT_EQ(fc1[0].box, (Box{{0, 0}, {2, 2}}));  // rank 0
  EXPECT_EQ(fc1[1].box, (Box{{4, 0}, {2, 2}}));
  EXPECT_EQ(fc1[2].box, (Box{{2, 0}, {2, 2}}));  // rank 1
  EXPECT_EQ(fc1[3].box, (Box{{6, 0}, {2, 2}}));
  EXPECT_EQ(fc1[1].begin, fc1[0].begin + 4);
}

TEST(BucketState, ABucketOfAnotherLengthIsRefusedWithBoth) {
  TorchDistMetadata metadata = two_ranks();
  metadata.tensors.at(key(1, "exp_avg")).info.shape = {kLength - 1};
  EXPECT_THAT(error_of([&] { parts_of(metadata, run_arguments()); }),
              HasSubstr("has 515 elements, but this model's parameters make 516"));
  metadata = two_ranks();
  metadata.tensors.at(key(1, "exp_avg")).info.dtype = DType::bf16;
  EXPECT_THAT(error_of([&] { parts_of(metadata, run_arguments()); }),
              HasSubstr("is bf16 [516] instead of flat fp32"));
}

TEST(BucketState, MissingStatesAndRanksThatNobodyListedAreTold) {
  TorchDistMetadata metadata = two_ranks();
  metadata.tensors.erase(key(1, "exp_avg_sq"));
  EXPECT_THAT(
      error_of([&] { parts_of(metadata, run_arguments()); }),
      HasSubstr("there is no optimizer.distributed.dp_group_idx_1.gbuf_idx_0...exp_avg_sq"));
  metadata = two_ranks();
  metadata.tensors[key(2, "param")] = metadata.tensors.at(key(0, "param"));
  EXPECT_THAT(error_of([&] { parts_of(metadata, run_arguments()); }),
              HasSubstr("1 of its tensors belong to ranks that the run's arguments do not list"));
  EXPECT_FALSE(has_bucket_state({}));
}

TEST(BucketState, WithoutTheRunsArgumentsNothingIsKnown) {
  const TorchDistMetadata metadata = two_ranks();
  EXPECT_THAT(error_of([&] { parts_of(metadata, nullptr); }),
              HasSubstr("the arguments of the run, which say how it was cut, are missing"));
  auto args = run_arguments();
  args.erase("num_layers");
  EXPECT_EQ(error_of([&] { parts_of(metadata, args); }),
            "the run's arguments do not say 'num_layers'");
  args = run_arguments();
  args["tensor_model_parallel_size"] = 3;
  EXPECT_THAT(error_of([&] { parts_of(metadata, args); }),
              HasSubstr("which 3 tensor-parallel ranks cannot have cut evenly"));
}

}  // namespace
}  // namespace phx
