#include "phalanx/convert/megatron_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/torch_fixture.h"
#include "phalanx/base/json.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

Path legacy(const std::string& name) { return Path(PHX_TEST_DATA) / "megatron_legacy" / name; }

size_t of_optimizer(const TensorSource& source) {
  size_t count = 0;
  for (const auto& [name, info] : source.tensors()) count += name.starts_with("optimizer.");
  return count;
}

TEST(MegatronModel, BothFormsAreKnownByTheirFolders) {
  EXPECT_TRUE(is_megatron_folder(torch_fixture("torch_dist")));
  EXPECT_TRUE(is_megatron_folder(torch_fixture("torch"), 30));
  EXPECT_FALSE(is_megatron_folder(torch_fixture("torch"), 31));
  EXPECT_FALSE(is_megatron_folder(torch_fixture("hf_bin")));
  EXPECT_EQ(MegatronModel(torch_fixture("torch_dist")).kind, "torch_dist");
  EXPECT_EQ(MegatronModel(torch_fixture("torch")).path, torch_fixture("torch") / "iter_0000030");
}

TEST(MegatronModel, StateIsThereIfAllOfItIsAndIsWanted) {
  const MegatronModel both(legacy("gpt2_fp16") / "iter_0000003");
  EXPECT_TRUE(both.has_optimizer) << both.why_no_optimizer;
  EXPECT_GT(of_optimizer(*both.tensors), 0u);
  EXPECT_EQ(of_optimizer(*both.weights), 0u);

  const MegatronModel weights(legacy("gpt2_fp16") / "iter_0000003", {}, 0, MegatronParts::weights);
  EXPECT_FALSE(weights.has_optimizer);
  EXPECT_EQ(of_optimizer(*weights.tensors), 0u);
  EXPECT_TRUE(weights.optimizer_saved);
  EXPECT_EQ(weights.why_no_optimizer, "");

  const MegatronModel none(torch_fixture("torch"));  // saved without any
  EXPECT_FALSE(none.has_optimizer);
  EXPECT_NE(none.why_no_optimizer, "");
  EXPECT_EQ(of_optimizer(*none.tensors), 0u);
}

TEST(MegatronModel, RowsOfPaddingAreLeftOutWhereTheVocabularyIsKnown) {
  const MegatronModel model(torch_fixture("torch_dist"), {}, 22, MegatronParts::weights);
  EXPECT_EQ(model.tensors->tensors().at("output_layer.weight").shape, (Dims{22, 8}));
  EXPECT_EQ(model.options()["vocab_size"], 22);
  EXPECT_FALSE(model.options().contains("padded_vocab_size"));
}

TEST(MegatronModel, OptionsComeFromTheRunsArguments) {
  const MegatronModel model(legacy("llama_bf16_tp2") / "iter_0000003");
  const nlohmann::json options = model.options();
  EXPECT_EQ(options.at("hidden_size"), parse_json(model.common_json)["args"]["hidden_size"]);
  MegatronModel unsaid = model;
  unsaid.common_json = "{}";
  EXPECT_THAT(error_of([&] { unsaid.options(); }),
              HasSubstr("does not hold the arguments of its run"));
}

TEST(MegatronModel, WeightsOfNoIterationAreKnownByTheFolder) {
  const TempFolder folder;
  std::filesystem::copy(legacy("gpt2_fp16") / "iter_0000003", folder / "release",
                        std::filesystem::copy_options::recursive);
  write_file(folder / "latest_checkpointed_iteration.txt", "release");
  const MegatronModel model(folder.path());
  EXPECT_TRUE(model.release);
  EXPECT_FALSE(model.has_optimizer) << "a release has no state to go on with";
}

}  // namespace
}  // namespace phx
