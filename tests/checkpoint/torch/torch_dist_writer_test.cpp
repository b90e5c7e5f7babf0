#include "phalanx/checkpoint/torch/torch_dist_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/memory_source.h"
#include "checkpoint/torch/torch_names.h"
#include "checkpoint/torch_fixture.h"
#include "phalanx/checkpoint/torch/torch_dist.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TEST(TorchDistWriter, WhatIsWrittenIsReadAgain) {
  for (const char* name : {"torch_dist", "torch_dist_older"}) {  // layers alike, and not
    const TempFolder folder;
    const TorchDistCheckpoint before(torch_fixture(name));
    write_torch_dist(before, folder / "iter_0000030",
                     {.iteration = 30,
                      .args = R"({"a": [1, 2.5, "x", null, true], "b": {"c": -7}})",
                      .file_bytes = 5000});
    EXPECT_TRUE(std::filesystem::exists(folder / "iter_0000030" / "__0_1.distcp"));
    const TorchDistCheckpoint after(folder / "iter_0000030");
    const auto names = model_names(2, name == std::string("torch_dist") ? 2 : 1);
    EXPECT_EQ(after.tensors().size(), names.size());
    for (const std::string& tensor : names) expect_fixture(after, tensor, tensor);
    EXPECT_EQ(after.common_json(),
              R"({"args":{"a":[1,2.5,"x",null,true],"b":{"c":-7}},"checkpoint_version":3.0,)"
              R"("iteration":30})");
    EXPECT_THAT(error_of([&] { write_torch_dist(before, folder / "iter_0000030"); }),
                HasSubstr("holds a checkpoint already"));
  }
}

TensorsInMemory small_model(DType dtype) {
  TensorsInMemory source;
  const auto floats = [&](const std::string& name, const Dims& shape) {
    const int64_t count = *num_elements(shape);
    std::vector<std::byte> bytes(size_t(count * size_of(dtype)));
    for_float_dtype(dtype, [&]<class T>() {
      for (int64_t i = 0; i < count; ++i) {
        const T value(float(i + 1));
        std::memcpy(bytes.data() + i * int64_t(sizeof(T)), &value, sizeof(T));
      }
    });
    source.set(name, {dtype, shape}, bytes);
  };
  floats("embedding.word_embeddings.weight", {3, 2});
  floats("decoder.final_layernorm.weight", {2});
  return source;
}

TEST(TorchDistWriter, VocabularyRowsArePaddedWithZeros) {
  const TempFolder folder;
  write_torch_dist(small_model(DType::f32), folder / "iter_0000001", {.padded_vocab_size = 5});
  const TorchDistCheckpoint padded(folder / "iter_0000001");
  EXPECT_EQ(padded.tensors().at("embedding.word_embeddings.weight").shape, (Dims{5, 2}));
  EXPECT_EQ(read_numbers(padded, "embedding.word_embeddings.weight"),
            (std::vector<double>{1, 2, 3, 4, 5, 6, 0, 0, 0, 0}));
  EXPECT_EQ(padded.tensors().at("decoder.final_layernorm.weight").shape, Dims{2});
}

TEST(TorchDistWriter, OptimizerStateNeedsAllOfIt) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] {
                write_torch_dist(small_model(DType::f32), folder / "iter_0000001",
                                 {.optimizer = true});
              }),
              HasSubstr("memory has no fp32 optimizer.exp_avg.decoder.final_layernorm.weight"));
  EXPECT_FALSE(std::filesystem::exists(folder / "iter_0000001"))
      << "something was written before the check";
}

// A router's biases are no parameter, and Megatron saves no loads of a step.
TEST(TorchDistWriter, WhatRoutersKeepHasNoOptimizerState) {
  const TempFolder folder;
  TensorsInMemory source = small_model(DType::f32);
  for (const std::string& name : source.names())
    for (const char* state : {"exp_avg.", "exp_avg_sq.", "master."})
      source.set(std::string("optimizer.") + state + name, source.tensors().at(name),
                 source.bytes(name));
  const std::string router = "decoder.layers.0.mlp.router.";
  source.set(router + "expert_bias", {DType::f32, {2}}, std::vector<std::byte>(8, std::byte{7}));
  source.set(router + "global_tokens_per_expert", {DType::f32, {2}}, std::vector<std::byte>(8));
  write_torch_dist(source, folder / "iter_0000001", {.optimizer = true});
  const auto metadata = TorchDistMetadata::read(folder / "iter_0000001" / ".metadata");
  EXPECT_EQ(metadata.tensors.at("decoder.layers.mlp.router.expert_bias").info,
            (TensorInfo{DType::f32, {1, 2}}));
  for (const auto& [key, tensor] : metadata.tensors) {
    EXPECT_FALSE(key.ends_with("global_tokens_per_expert")) << key;
    EXPECT_FALSE(key.starts_with("optimizer.") && key.ends_with("expert_bias")) << key;
  }
}

TEST(TorchDistWriter, ASourceWithoutWeightsIsRefused) {
  const TempFolder folder;
  TensorsInMemory source;
  source.set("optimizer.exp_avg.x", {DType::f32, {1}}, std::vector<std::byte>(4));
  EXPECT_EQ(error_of([&] { write_torch_dist(source, folder / "iter_0000001"); }),
            "memory has no weights");
}

}  // namespace
}  // namespace phx
