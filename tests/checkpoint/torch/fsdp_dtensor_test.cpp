// Two ranks of Megatron-FSDP wrote these folders (scripts/check_megatron.py --fixtures).
#include "phalanx/checkpoint/torch/fsdp_dtensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/edited_torch_dist.h"
#include "checkpoint/torch_fixture.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Path fixture(const std::string& name) {
  return Path(PHX_TEST_DATA) / "megatron" / name / "iter_0000003";
}

std::vector<std::string> names_of(const TensorSource& source, const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& [name, info] : source.tensors())
    if (name.starts_with(prefix)) names.push_back(name);
  return names;
}

TEST(FsdpDtensor, ItsTensorsHaveOurNames) {
  const FsdpCheckpoint gpt2(fixture("gpt2_fsdp2"));
  EXPECT_THAT(
      names_of(gpt2, "decoder.layers.0.mlp."),
      ElementsAre("decoder.layers.0.mlp.linear_fc1.bias",
                  "decoder.layers.0.mlp.linear_fc1.layer_norm_bias",
                  "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
                  "decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.0.mlp.linear_fc2.bias",
                  "decoder.layers.0.mlp.linear_fc2.weight"));
  for (const char* name : {"optimizer.exp_avg.decoder.final_layernorm.bias",
                           "optimizer.exp_avg_sq.embedding.word_embeddings.weight",
                           "optimizer.master.embedding.position_embeddings.weight"})
    EXPECT_TRUE(gpt2.tensors().contains(name)) << name;
  // Every parameter has two moments and a master.
  EXPECT_EQ(gpt2.tensors().size(),
            4u * names_of(gpt2, "decoder.").size() + 4u * names_of(gpt2, "embedding.").size());
  EXPECT_EQ(FsdpCheckpoint(fixture("gpt2_fsdp2"), {.optimizer = false}).tensors().size(),
            gpt2.tensors().size() / 4);
}

TEST(FsdpDtensor, HalvesOfAGatedMatrixAreJoinedGateFirst) {
  const Path path = fixture("llama_bf16_fsdp2");
  const FsdpCheckpoint llama(path);
  const std::string name = "decoder.layers.1.mlp.linear_fc1.weight";
  for (const std::string& whole : {name, "optimizer.master." + name, "optimizer.exp_avg." + name})
    EXPECT_EQ(llama.tensors().at(whole).shape, Dims({16, 8})) << whole;
  TorchDistFiles files(path);
  const auto metadata = TorchDistMetadata::read(path / ".metadata");
  std::vector<float> halves(2 * 64);
  for (int half = 0; half < 2; ++half) {
    const std::string key =
        "model.module.decoder.layers.1.mlp.linear_fc1.weight" + std::string(half ? "_v" : "_w");
    const TorchDistTensor& tensor = metadata.tensors.at(key);
    for (const TorchDistChunk& chunk : tensor.chunks) files.open(key, chunk.place);
    files.copy(key, tensor, whole_box({8, 8}),
               std::as_writable_bytes(std::span(halves)).subspan(half * 256, 256));
  }
  const std::vector<double> wanted(halves.begin(), halves.end());
  EXPECT_EQ(read_numbers(llama, "optimizer.master." + name), wanted);
  // Rows 6 to 9 lie in both.
  const std::vector<double> middle(wanted.begin() + 48, wanted.begin() + 80);
  EXPECT_EQ(read_numbers(llama, "optimizer.master." + name, {{6, 0}, {4, 8}}), middle);
}

TEST(FsdpDtensor, WeightsOfAModelIn16BitsAreItsMastersRounded) {
  const FsdpCheckpoint llama(fixture("llama_bf16_fsdp2"));
  const std::string name = "decoder.layers.0.self_attention.linear_qkv.weight";
  ASSERT_EQ(llama.tensors().at(name).dtype, DType::bf16);
  ASSERT_EQ(llama.tensors().at("optimizer.master." + name).dtype, DType::f32);
  const auto weights = read_numbers(llama, name),
             masters = read_numbers(llama, "optimizer.master." + name);
  int different = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(weights[i], double(float(bf16(float(masters[i])))));
    different += weights[i] != masters[i];
  }
  EXPECT_GT(different, 100);  // of 192: most fp32 numbers are no bf16 numbers
}

TEST(FsdpDtensor, ArgumentsAndCountersAreThoseOfTheRun) {
  const auto common = parse_json(FsdpCheckpoint(fixture("llama_bf16_fsdp2")).common_json());
  EXPECT_EQ(common.at("iteration"), 3);
  EXPECT_EQ(common.at("args").at("hidden_size"), 8);
  EXPECT_EQ(common.at("opt_param_scheduler").at("num_steps"), 6);
  EXPECT_EQ(common.at("optimizer").at("param_groups").at(0).at("step"), 3);
}

TEST(FsdpDtensor, RowsThatPadTheVocabularyAreCutOff) {
  const FsdpCheckpoint gpt2(fixture("gpt2_fsdp2"), {.vocab_size = 21});
  const std::string name = "embedding.word_embeddings.weight";
  for (const char* of : {"", "optimizer.master.", "optimizer.exp_avg_sq."})
    EXPECT_EQ(gpt2.tensors().at(of + name).shape, Dims({21, 8})) << of;
  const auto all = read_numbers(FsdpCheckpoint(fixture("gpt2_fsdp2")), name);
  EXPECT_EQ(read_numbers(gpt2, name), std::vector<double>(all.begin(), all.begin() + 21 * 8));
}

TEST(FsdpDtensor, AMatrixThatLacksAHalfIsRefused) {
  const TempFolder folder;
  EditedTorchDist edited(fixture("llama_bf16_fsdp2"), folder / "x");
  edited.metadata.tensors.erase("model.module.decoder.layers.0.mlp.linear_fc1.weight_v");
  edited.save();
  EXPECT_THAT(error_of([&] { FsdpCheckpoint checkpoint(folder / "x"); }),
              HasSubstr("linear_fc1.weight_w has no other half "
                        "model.module.decoder.layers.0.mlp.linear_fc1.weight_v"));
}

TEST(FsdpDtensor, StepsThatDifferAreNoStep) {
  const TempFolder folder;
  EditedTorchDist edited(fixture("llama_bf16_fsdp2"), folder / "x");
  const std::string bytes = saved_object(nlohmann::json(4));
  write_file(folder / "x/__9_0.distcp", bytes);
  edited.metadata.objects.at(
      "optimizer.param_to_group_meta.module.module.module.decoder.final_layernorm.weight.step") = {
      "__9_0.distcp", 0, int64_t(bytes.size())};
  edited.save();
  EXPECT_FALSE(parse_json(FsdpCheckpoint(folder / "x").common_json()).contains("optimizer"));
}

TEST(FsdpDtensor, OtherDistributedCheckpointsOfPyTorchAreRefused) {
  const TempFolder folder;
  EditedTorchDist edited(fixture("gpt2_fsdp2"), folder / "x");
  auto& tensors = edited.metadata.tensors;
  std::erase_if(tensors, [](const auto& item) { return item.first.starts_with("model."); });
  edited.save();
  EXPECT_THAT(error_of([&] { FsdpCheckpoint checkpoint(folder / "x"); }),
              HasSubstr("torch_dcp is not read"));
}

TEST(FsdpDtensor, ACutFileIsNamed) {
  const TempFolder folder;
  EditedTorchDist edited(fixture("gpt2_fsdp2"), folder / "x");
  std::filesystem::resize_file(folder / "x/__1_0.distcp", 100'000);
  EXPECT_THAT(error_of([&] { FsdpCheckpoint checkpoint(folder / "x"); }),
              HasSubstr("__1_0.distcp has 100000 bytes, but"));
}

}  // namespace
}  // namespace phx
