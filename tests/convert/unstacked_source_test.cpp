#include "phalanx/convert/unstacked_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/hf_fixtures.h"
#include "phalanx/checkpoint/compare.h"
#include "phalanx/convert/hf_model.h"
#include "phalanx/convert/logits.h"
#include "support/gradients.h"

namespace phx {
namespace {

using phx::testing::test_device;
using ::testing::HasSubstr;

TEST(UnstackedSource, ExpertsMayBeInOneTensor) {
  const TempFolder folder;
  const HfModel hf(hf_fixture("mixtral_stacked"));
  const SafetensorsFile file(hf_fixture("mixtral_stacked") / "logits.safetensors");
  const std::vector<float> theirs = values<float>(file.at("logits"));
  const std::vector<double> ours = logits_of(
      hf.config.model, *hf.tensors, values<int64_t>(file.at("tokens")), DType::f32, test_device());
  const std::vector<double> wide(theirs.begin(), theirs.end());
  EXPECT_LE(compare_logits(ours, wide, 53).largest, 1e-4);

  export_hf(folder / "out", std::make_shared<TensorsInMemory>(*hf.tensors),
            {.model = hf.config.model});
  EXPECT_TRUE(tensors_of(folder / "out")
                  .tensors()
                  .contains("model.layers.0.block_sparse_moe.experts.3.w2.weight"));
  EXPECT_TRUE(differences(*HfModel(folder / "out").tensors, *hf.tensors).empty());
}

TEST(UnstackedSource, AStackOfExpertsThatIsNoneIsRefused) {
  const TempFolder folder;
  TensorsInMemory tensors = tensors_of(hf_fixture("mixtral_stacked"));
  const std::string name = "model.layers.0.mlp.experts.gate_up_proj";
  TensorInfo info = tensors.tensors().at(name);
  info.shape = {info.shape[0] * info.shape[1], info.shape[2]};
  tensors.set(name, info, tensors.bytes(name));
  write_folder(folder / "flat", tensors, "mixtral_stacked");
  EXPECT_THAT(error_of([&] { HfModel model(folder / "flat"); }),
              HasSubstr(name + " should be one matrix for each expert"));
}

TEST(UnstackedSource, AnExpertsPartIsCutOutOfTheStack) {
  const auto stacked = std::make_shared<TensorsInMemory>();
  std::vector<std::byte> bytes(2 * 4 * 3);  // two experts, gate and up of two rows, three columns
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i);
  stacked->set("model.layers.7.mlp.experts.gate_up_proj", {DType::u8, {2, 4, 3}}, bytes);
  stacked->set("model.norm.weight", {DType::u8, {1}}, {std::byte{99}});
  const UnstackedSource source(stacked, *find_family("qwen3_moe"));
  EXPECT_EQ(source.tensors().size(), 5u);
  const std::string up = "model.layers.7.mlp.experts.1.up_proj.weight";
  EXPECT_EQ(source.tensors().at(up), (TensorInfo{DType::u8, {2, 3}}));
  std::vector<std::byte> out(2);
  source.read(up, {{1, 1}, {1, 2}}, out);  // of expert 1, row 2 + 1: 12 + 9 + 1
  EXPECT_EQ(out, (std::vector<std::byte>{std::byte{22}, std::byte{23}}));
  out.resize(1);
  source.read("model.norm.weight", {{0}, {1}}, out);
  EXPECT_EQ(out[0], std::byte{99});
  EXPECT_THAT(error_of([&] { source.read("model.layers.7.mlp.experts.gate_up_proj", {}, out); }),
              HasSubstr("has no tensor"));
}

TEST(UnstackedSource, WithoutExpertsInItsNameATensorIsOnlyRenamed) {
  const auto stacked = std::make_shared<TensorsInMemory>();
  stacked->set("model.layers.0.mlp.gate.weight", {DType::u8, {1}}, {std::byte{5}});
  const UnstackedSource source(stacked, *find_family("mixtral"));
  EXPECT_TRUE(source.tensors().contains("model.layers.0.block_sparse_moe.gate.weight"));
  stacked->set("model.layers.0.block_sparse_moe.gate.weight", {DType::u8, {1}}, {std::byte{6}});
  EXPECT_THAT(error_of([&] { UnstackedSource twice(stacked, *find_family("mixtral")); }),
              HasSubstr("twice, under two names"));
}

}  // namespace
}  // namespace phx
