#include "phalanx/checkpoint/torch/fsdp_dtensor_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/torch_fixture.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/fsdp_dtensor.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

Path fixture(const std::string& name) {
  return Path(PHX_TEST_DATA) / "megatron" / name / "iter_0000003";
}

// Two groups: of matrices, and of vectors.
constexpr const char* kCommon = R"({"optimizer": {"param_groups": [
    {"weight_decay": 0.1, "step": 5}, {"weight_decay": 0.0, "step": 5}]},
    "opt_param_scheduler": {"num_steps": 10}})";

FsdpWriteOptions options_of(bool bf16) {
  return {.iteration = 3,
          .args = bf16 ? R"({"bf16": true})" : R"({"bf16": false})",
          .common = kCommon,
          .optimizer = true,
          .in_16_bits = bf16};
}

TEST(FsdpDtensorWriter, WhatIsWrittenIsReadAgain) {
  for (const bool bf16 : {false, true}) {
    const TempFolder folder;
    const FsdpCheckpoint before(fixture(bf16 ? "llama_bf16_fsdp2" : "gpt2_fsdp2"));
    write_fsdp_dtensor(before, folder / "x", options_of(bf16));
    const FsdpCheckpoint after(folder / "x");
    ASSERT_EQ(after.tensors(), before.tensors());
    for (const auto& [name, info] : before.tensors())
      EXPECT_EQ(read_numbers(after, name), read_numbers(before, name)) << name;
    const auto common = parse_json(after.common_json());
    EXPECT_EQ(common.at("iteration"), 3);
    EXPECT_EQ(common.at("args").at("bf16"), bf16);
    EXPECT_EQ(common.at("opt_param_scheduler").at("num_steps"), 10);
    EXPECT_EQ(common.at("optimizer").at("param_groups").at(0).at("step"), 5);
    EXPECT_THAT(error_of([&] { write_fsdp_dtensor(before, folder / "x", options_of(bf16)); }),
                HasSubstr("holds a checkpoint already"));
  }
}

TEST(FsdpDtensorWriter, MatricesAreInTheGroupThatDecaysAndVectorsInTheOther) {
  const TempFolder folder;
  write_fsdp_dtensor(FsdpCheckpoint(fixture("gpt2_fsdp2")), folder / "x", options_of(false));
  const auto metadata = TorchDistMetadata::read(folder / "x/.metadata");
  TorchDistFiles files(folder / "x");
  const auto decay = [&](const std::string& parameter) {
    const std::string key =
        "optimizer.param_to_group_meta.module.module." + parameter + ".weight_decay";
    files.open(key, metadata.objects.at(key));
    const TorchArchive archive = files.archive_at(key, metadata.objects.at(key));
    return archive.number(archive.root());
  };
  EXPECT_EQ(decay("decoder.layers.0.mlp.linear_fc1.weight"), 0.1);
  EXPECT_EQ(decay("embedding.position_embeddings.weight"), 0.1);
  EXPECT_EQ(decay("decoder.layers.0.mlp.linear_fc1.bias"), 0.0);
  // The same norm, as Megatron calls it with either implementation.
  EXPECT_EQ(decay("decoder.layers.0.mlp.linear_fc1.layer_norm_weight"), 0.0);
  EXPECT_EQ(decay("decoder.layers.0.pre_mlp_layernorm.weight"), 0.0);
}

TEST(FsdpDtensorWriter, WordEmbeddingAndOutputLayerMayHaveALearningRateOfTheirOwn) {
  const TempFolder folder;
  auto options = options_of(false);
  options.common =
      R"({"optimizer": {"param_groups": [{"lr": 1}, {"lr": 2}, {"lr": 3}, {"lr": 4}]}})";
  write_fsdp_dtensor(FsdpCheckpoint(fixture("gpt2_fsdp2")), folder / "x", options);
  const auto metadata = TorchDistMetadata::read(folder / "x/.metadata");
  TorchDistFiles files(folder / "x");
  const auto rate = [&](const std::string& parameter) {
    const std::string key = "optimizer.param_to_group_meta.module.module." + parameter + ".lr";
    files.open(key, metadata.objects.at(key));
    const TorchArchive archive = files.archive_at(key, metadata.objects.at(key));
    return archive.number(archive.root());
  };
  EXPECT_EQ(rate("embedding.word_embeddings.weight"), 3);
  EXPECT_EQ(rate("embedding.position_embeddings.weight"), 1);
  EXPECT_EQ(rate("decoder.final_layernorm.weight"), 2);
}

TEST(FsdpDtensorWriter, RowsThatPadTheVocabularyAreZeros) {
  const TempFolder folder;
  auto options = options_of(false);
  options.padded_vocab_size = 32;
  write_fsdp_dtensor(FsdpCheckpoint(fixture("gpt2_fsdp2")), folder / "x", options);
  const FsdpCheckpoint after(folder / "x");
  const std::string name = "embedding.word_embeddings.weight";
  ASSERT_EQ(after.tensors().at(name).shape, Dims({32, 8}));
  for (const double number : read_numbers(after, name, {{24, 0}, {8, 8}})) EXPECT_EQ(number, 0);
}

TEST(FsdpDtensorWriter, StateThatIsNotThereIsNamed) {
  const TempFolder folder;
  const FsdpCheckpoint weights(fixture("gpt2_fsdp2"), {.optimizer = false});
  EXPECT_THAT(error_of([&] { write_fsdp_dtensor(weights, folder / "x", options_of(false)); }),
              HasSubstr("has no fp32 optimizer.master.decoder.final_layernorm.bias"));
  EXPECT_FALSE(std::filesystem::exists(folder / "x/.metadata"));
}

}  // namespace
}  // namespace phx
