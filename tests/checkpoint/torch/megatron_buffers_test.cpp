#include "phalanx/checkpoint/torch/megatron_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/base/json.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "name@begin" of every parameter, and the bucket's length.
std::vector<std::string> described(const MegatronBuffer& buffer,
                                   const std::vector<BufferParameter>& parameters) {
  std::vector<std::string> lines;
  for (const BufferBucket& bucket : buffer.buckets) {
    std::string line;
    for (const BufferPlace& place : bucket.places)
      line += str_cat(parameters[place.parameter].name, "@", place.begin, " ");
    lines.push_back(line + "of " + std::to_string(bucket.numel));
  }
  return lines;
}

TEST(MegatronBuffers, BeginWithTheLastParameterAndAlignEach) {
  const std::vector<BufferParameter> parameters = {{"a", 100}, {"b", 3}, {"c", 64}, {"d", 65}};
  const auto buffers = megatron_buffers(parameters, {});
  ASSERT_EQ(buffers.size(), 1u);
  EXPECT_THAT(described(buffers[0], parameters), ElementsAre("d@0 c@128 b@192 a@256 of 356"));
}

TEST(MegatronBuffers, WereNotAlignedInOlderVersions) {
  const std::vector<BufferParameter> parameters = {{"a", 100}, {"b", 3}, {"c", 64}};
  const auto buffers = megatron_buffers(parameters, {.bucket_size = {}, .alignment = 1});
  EXPECT_THAT(described(buffers[0], parameters), ElementsAre("c@0 b@64 a@67 of 167"));
}

TEST(MegatronBuffers, EndABucketWhenItIsLargeEnough) {
  const std::vector<BufferParameter> parameters = {{"a", 10}, {"b", 70}, {"c", 30}, {"d", 64}};
  const auto buffers = megatron_buffers(parameters, {.bucket_size = 90});
  EXPECT_THAT(described(buffers[0], parameters), ElementsAre("d@0 c@64 of 94", "b@0 a@128 of 138"));
}

// The padding before the embedding counts in the bucket that ends there, as it does in Megatron.
TEST(MegatronBuffers, GiveASharedEmbeddingABucketOfItsOwn) {
  const std::vector<BufferParameter> first = {
      {"embedding", 100, DType::f32, true}, {"position", 50}, {"norm", 3}};
  EXPECT_THAT(described(megatron_buffers(first, {})[0], first),
              ElementsAre("norm@0 position@64 of 128", "embedding@0 of 100"));
  const std::vector<BufferParameter> last = {{"fc2", 50}, {"output", 100, DType::f32, true}};
  EXPECT_THAT(described(megatron_buffers(last, {})[0], last),
              ElementsAre("output@0 of 100", "fc2@0 of 50"));
}

TEST(MegatronBuffers, AreSeveralWhereTypesDiffer) {
  const std::vector<BufferParameter> parameters = {
      {"a", 8, DType::bf16}, {"router", 4, DType::f32}, {"b", 8, DType::bf16}};
  const auto buffers = megatron_buffers(parameters, {});
  ASSERT_EQ(buffers.size(), 2u);
  EXPECT_EQ(buffers[0].dtype, DType::bf16);
  EXPECT_THAT(described(buffers[0], parameters), ElementsAre("b@0 a@64 of 72"));
  EXPECT_THAT(described(buffers[1], parameters), ElementsAre("router@0 of 4"));
}

TEST(MegatronBuffers, TakeTheirBucketSizeFromTheArguments) {
  const auto size = [](const char* args, int64_t stage = 0, int64_t chunk = 0) {
    return buffer_rules(parse_json(args), 1'000, stage, chunk).bucket_size;
  };
  EXPECT_EQ(size("{}"), std::nullopt);
  EXPECT_EQ(size(R"({"overlap_grad_reduce": false, "ddp_bucket_size": 7})"), std::nullopt);
  EXPECT_EQ(size(R"({"overlap_grad_reduce": true})"), 40'000'000);
  EXPECT_EQ(size(R"({"overlap_grad_reduce": true, "data_parallel_size": 32,
                     "context_parallel_size": 2})"),
            64'000'000);
  EXPECT_EQ(size(R"({"overlap_grad_reduce": true, "ddp_bucket_size": 7})"), 7);
  EXPECT_EQ(size(R"({"overlap_grad_reduce": true, "ddp_bucket_size": 7, "ddp_num_buckets": 4})"),
            250);
  EXPECT_EQ(size(R"({"overlap_grad_reduce": true, "ddp_bucket_size": 7})", 1), std::nullopt);
  EXPECT_EQ(size(R"({"overlap_grad_reduce": true, "ddp_bucket_size": 7})", 0, 1), std::nullopt);
}

std::vector<std::string> sorted(std::vector<std::string> names, NormModules norms) {
  std::ranges::sort(names);
  sort_as_registered(names, {.norms = norms});
  return names;
}

TEST(RegistrationOrder, HasTheProjectionBeforeQkvAndFusedNormsInTheLinearLayer) {
  const std::vector<std::string> names = {
      "embedding.word_embeddings.weight",
      "embedding.position_embeddings.weight",
      "decoder.layers.2.self_attention.linear_proj.weight",
      "decoder.layers.2.self_attention.linear_proj.bias",
      "decoder.layers.2.self_attention.linear_qkv.layer_norm_weight",
      "decoder.layers.2.self_attention.linear_qkv.layer_norm_bias",
      "decoder.layers.2.self_attention.linear_qkv.weight",
      "decoder.layers.2.self_attention.linear_qkv.bias",
      "decoder.layers.2.self_attention.q_layernorm.weight",
      "decoder.layers.2.self_attention.k_layernorm.weight",
      "decoder.layers.2.mlp.linear_fc1.layer_norm_weight",
      "decoder.layers.2.mlp.linear_fc1.weight",
      "decoder.layers.2.mlp.linear_fc2.weight",
      "decoder.layers.10.self_attention.linear_proj.weight",
      "decoder.final_layernorm.weight",
      "decoder.final_layernorm.bias",
      "output_layer.weight",
  };
  EXPECT_EQ(sorted(names, NormModules::fused), names);
}

TEST(RegistrationOrder, HasNormsOfTheirOwnInFrontWhicheverNameTheyHave) {
  EXPECT_THAT(sorted({"decoder.layers.0.self_attention.linear_proj.weight",
                      "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
                      "decoder.layers.0.self_attention.linear_qkv.weight",
                      "decoder.layers.0.pre_mlp_layernorm.weight",
                      "decoder.layers.0.mlp.linear_fc1.weight"},
                     NormModules::separate),
              ElementsAre("decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
                          "decoder.layers.0.self_attention.linear_proj.weight",
                          "decoder.layers.0.self_attention.linear_qkv.weight",
                          "decoder.layers.0.pre_mlp_layernorm.weight",
                          "decoder.layers.0.mlp.linear_fc1.weight"));
}

// Experts by their numbers, not by the letters of their names.
TEST(RegistrationOrder, HasExpertsBetweenTheRouterAndTheSharedExpert) {
  const std::string layer = "decoder.layers.0.";
  std::vector<std::string> names = {layer + "pre_mlp_layernorm.weight",
                                    layer + "mlp.router.weight",
                                    layer + "mlp.experts.linear_fc1.weight2",
                                    layer + "mlp.experts.linear_fc2.weight2",
                                    layer + "mlp.experts.linear_fc1.weight10",
                                    layer + "mlp.experts.linear_fc2.weight10",
                                    layer + "mlp.shared_experts.gate_weight",
                                    layer + "mlp.shared_experts.linear_fc1.weight",
                                    layer + "mlp.shared_experts.linear_fc2.weight"};
  EXPECT_EQ(sorted(names, NormModules::separate), names);
  const std::vector<std::string> sequential = names;
  std::swap(names[3], names[4]);  // --moe-grouped-gemm: fc1 of all, then fc2
  std::vector<std::string> grouped = sequential;
  sort_as_registered(grouped, {.experts = ExpertModules::grouped});
  EXPECT_EQ(grouped, names);
}

// Of multi-token prediction: behind the decoder's norm, before the head.
TEST(RegistrationOrder, HasLayersAheadBeforeTheHead) {
  const std::string ahead = "mtp.layers.", inside = "transformer_layer.";
  std::vector<std::string> names = {"decoder.layers.1.mlp.linear_fc2.weight",
                                    "decoder.final_layernorm.weight",
                                    ahead + "0.enorm.weight",
                                    ahead + "0.hnorm.weight",
                                    ahead + "0.eh_proj.weight",
                                    ahead + "0." + inside + "self_attention.linear_proj.weight",
                                    ahead + "0." + inside + "mlp.experts.linear_fc1.weight2",
                                    ahead + "0." + inside + "mlp.experts.linear_fc1.weight10",
                                    ahead + "0.final_layernorm.weight",
                                    ahead + "1.enorm.weight",
                                    "output_layer.weight"};
  EXPECT_EQ(sorted(names, NormModules::separate), names);
}

TEST(RegistrationOrder, RefusesNamesThatItDoesNotKnow) {
  std::vector<std::string> names = {"decoder.layers.0.mlp.router.bias"};
  EXPECT_THAT(error_of([&] { sort_as_registered(names, {}); }),
              HasSubstr("decoder.layers.0.mlp.router.bias is no parameter of a layer"));
  names = {"decoder.layers.0.mlp.experts.linear_fc1.bias3"};
  EXPECT_THAT(error_of([&] { sort_as_registered(names, {}); }),
              HasSubstr("linear_fc1.bias3 is no parameter of an expert"));
  names = {"mtp.layers.0.other.weight"};
  EXPECT_THAT(error_of([&] { sort_as_registered(names, {}); }),
              HasSubstr("mtp.layers.0.other.weight is no parameter of a GPT model"));
}

TEST(RegistrationOrder, FollowsTheImplementation) {
  EXPECT_EQ(norm_modules(parse_json(R"({"transformer_impl": "local"})")), NormModules::separate);
  EXPECT_EQ(norm_modules(parse_json(R"({"transformer_impl": "transformer_engine"})")),
            NormModules::fused);
}

}  // namespace
}  // namespace phx
