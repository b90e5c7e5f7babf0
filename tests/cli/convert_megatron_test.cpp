#include "phalanx/cli/convert_megatron.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/edited_torch_dist.h"
#include "checkpoint/torch_fixture.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/torch/torch_dist.h"
#include "phalanx/checkpoint/write_checkpoint.h"
#include "phalanx/cli/convert_command.h"
#include "phalanx/cli/pretrain_options.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

std::string output_of(const std::vector<std::string>& args) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_convert(args), 0);
  return ::testing::internal::GetCapturedStdout();
}

TEST(ConvertMegatron, TorchDistBecomesNativeAndTorchDistAgain) {
  const TempFolder folder;
  const std::string native = folder / "native", out = folder / "out";
  EXPECT_THAT(output_of({"import", "--megatron", torch_fixture("torch_dist"), "--native", native,
                         "--vocab-size", "22"}),
              HasSubstr("60 tensors, optimizer state among them, are in"));
  const NativeCheckpoint checkpoint(checkpoint_path(native, 30));
  EXPECT_THAT(checkpoint.info("options"), HasSubstr("\"vocab_size\":22"));
  EXPECT_THAT(checkpoint.info("options"), HasSubstr("\"bf16\":true"));
  EXPECT_THAT(checkpoint.info("state"), HasSubstr("\"consumed_train_samples\":240"));

  EXPECT_THAT(output_of({"export", "--native", native, "--torch-dist", out}),
              HasSubstr("iter_0000030 as torch_dist"));
  EXPECT_EQ(latest_checkpoint(out), 30);
  const TorchDistCheckpoint after(Path(out) / "iter_0000030", {.vocab_size = 22});
  EXPECT_EQ(after.tensors().size(), 15u);
  for (const auto& [name, info] : after.tensors()) {
    EXPECT_EQ(info.dtype, DType::bf16);
    expect_fixture(after, name, name);
  }
  // The rows that pad the vocabulary, to a multiple of 128, are zero.
  const TorchDistCheckpoint padded(Path(out) / "iter_0000030");
  const auto rows = read_numbers(padded, "output_layer.weight", {{22, 0}, {106, 8}});
  EXPECT_EQ(rows, std::vector<double>(106 * 8, 0.0));
}

// Weights, moments and masters go there and come back to the bit, with the step and the schedules.
TEST(ConvertMegatron, OptimizerStateGoesToTorchDistAndBack) {
  const TempFolder folder;
  const std::string native = folder / "native", out = folder / "out", again = folder / "again";
  output_of({"import", "--megatron", torch_fixture("torch_dist"), "--native", native,
             "--vocab-size", "22"});
  // The fixture's arguments say no schedules: as a run with them would have saved it.
  const Path first = checkpoint_path(native, 30);
  nlohmann::json options = nlohmann::json::parse(NativeCheckpoint(first).info("options"));
  options["lr"] = 0.25;
  options["make_vocab_size_divisible_by"] = 8;
  CheckpointInfo info = NativeCheckpoint(first).manifest().info;
  info["options"] = options.dump();
  info["schedule"] = R"({"warm-up":8,"decay":800,"weight decay":800})";
  write_checkpoint(folder / "run", 30, NativeCheckpoint(first), info);
  EXPECT_THAT(output_of({"export", "--native", folder / "run", "--torch-dist", out, "--optimizer"}),
              HasSubstr("as torch_dist, with optimizer state"));
  EXPECT_THAT(output_of({"import", "--megatron", out, "--native", again, "--vocab-size", "22"}),
              HasSubstr("60 tensors, optimizer state among them"));
  const NativeCheckpoint before(first), after(checkpoint_path(again, 30));
  EXPECT_EQ(after.info("state"), before.info("state"));
  EXPECT_EQ(nlohmann::json::parse(after.info("schedule")), nlohmann::json::parse(info["schedule"]));
  EXPECT_EQ(nlohmann::json::parse(after.info("options"))["lr"], 0.25);
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const auto& [name, tensor] : before.tensors())
    EXPECT_EQ(read_numbers(after, name), read_numbers(before, name)) << name;
}

TEST(ConvertMegatron, WeightsOfNoRunHaveNoOptimizerStateToExport) {
  const TempFolder folder;
  const std::string native = folder / "native";
  output_of(
      {"import", "--megatron", torch_fixture("torch_dist"), "--native", native, "--weights-only"});
  EXPECT_THAT(error_of([&] {
                run_convert(std::vector<std::string>{"export", "--native", native, "--torch-dist",
                                                     folder / "out", "--optimizer"});
              }),
              HasSubstr("holds weights of no run, without optimizer state"));
}

TEST(ConvertMegatron, ExportsSayWhichModelTheyAre) {
  const TempFolder folder;
  const std::string native = folder / "native", out = folder / "out", again = folder / "again";
  output_of({"import", "--megatron", torch_fixture("torch_dist"), "--native", native});
  output_of({"export", "--native", native, "--torch-dist", out});
  output_of({"import", "--megatron", out, "--native", again, "--weights-only"});
  const auto model = [](const Path& path) {
    return nlohmann::json::parse(
        PretrainOptions::from_json(NativeCheckpoint(path).info("options")).to_json());
  };
  EXPECT_EQ(model(checkpoint_path(native, 30)), model(checkpoint_path(again, 0)));
}

TEST(ConvertMegatron, AFolderWithCheckpointsIsNotWrittenTo) {
  const TempFolder folder;
  const std::string native = folder / "native", megatron = torch_fixture("torch_dist");
  const std::vector<std::string> import = {"import",   "--megatron", megatron,
                                           "--native", native,       "--weights-only"};
  output_of(import);
  EXPECT_THAT(error_of([&] { run_convert(import); }),
              HasSubstr("--native " + native + " holds checkpoints already"));
  EXPECT_THAT(
      error_of([&] {
        run_convert(std::vector<std::string>{"export", "--native", native, "--torch-dist", native});
      }),
      HasSubstr("--torch-dist " + native + " holds checkpoints already"));
  EXPECT_FALSE(std::filesystem::exists(checkpoint_path(native, 0) / "common.pt"));
}

TEST(ConvertMegatron, WeightsCanBeTakenAlone) {
  const TempFolder folder;
  const std::string native = folder / "native";
  EXPECT_THAT(output_of({"import", "--megatron", torch_fixture("torch_dist"), "--native", native,
                         "--weights-only"}),
              HasSubstr("15 tensors of weights are in"));
  const NativeCheckpoint checkpoint(checkpoint_path(native, 0));
  EXPECT_EQ(checkpoint.tensors().size(), 15u);
  EXPECT_FALSE(checkpoint.manifest().info.contains("state"));
}

TEST(ConvertMegatron, WeightsTakenAloneAreThoseOfTheFile) {
  const TempFolder folder;
  EditedTorchDist edited(torch_fixture("torch_dist"), folder / "edited");
  const std::string name = "decoder.final_layernorm.weight";
  edited.replace(name, "decoder.layers.mlp.linear_fc1.layer_norm_weight");
  edited.save();
  const std::vector<std::string> import = {"import",   "--megatron", edited.path,
                                           "--native", folder / "a", "--weights-only"};
  output_of(import);
  expect_fixture(NativeCheckpoint(checkpoint_path(folder / "a", 0)), name,
                 "decoder.layers.0.mlp.linear_fc1.layer_norm_weight");
  const std::string error = error_of([&] {
    run_convert(
        std::vector<std::string>{"import", "--megatron", edited.path, "--native", folder / "b"});
  });
  EXPECT_THAT(error, HasSubstr("the weight decoder.final_layernorm.weight has"));
  EXPECT_THAT(error, HasSubstr("--weights-only"));
}

// dp_zero_gather_scatter keeps the state as an object a rank, not as tensors.
TEST(ConvertMegatron, StateThatIsNotSavedAsTensorsIsRefusedByItsKind) {
  const TempFolder folder;
  EditedTorchDist edited(torch_fixture("torch_dist"), folder / "edited");
  std::erase_if(edited.metadata.tensors,
                [](const auto& item) { return item.first.starts_with("optimizer."); });
  edited.save();
  const auto error = [&] {
    return error_of([&] {
      run_convert(std::vector<std::string>{"import", "--megatron", edited.path, "--native",
                                           folder / "native"});
    });
  };
  // The common state has an optimizer.
  EXPECT_THAT(error(), HasSubstr("its sharding type is fully_reshardable"));
  auto common = edited.common();
  common.erase("optimizer");
  edited.set_common(common);
  edited.metadata.objects["optimizer.distributed.dp_group_idx_0.param_state/shard_0_1"] =
      edited.metadata.objects.at("rng_state/shard_0.0_1.2");
  edited.save();
  EXPECT_THAT(error(), HasSubstr("its sharding type is dp_zero_gather_scatter"));
  EXPECT_THAT(error(), HasSubstr("--weights-only"));
  EXPECT_THAT(output_of({"import", "--megatron", edited.path, "--native", folder / "native",
                         "--weights-only"}),
              HasSubstr("15 tensors of weights are in"));
}

// A run from it would begin at iteration 0, with a fresh Adam.
TEST(ConvertMegatron, ARunSavedWithoutOptimizerStateIsRefused) {
  const TempFolder folder;
  const std::string native = folder / "native", out = folder / "out", again = folder / "again";
  output_of({"import", "--megatron", torch_fixture("torch_dist"), "--native", native});
  output_of({"export", "--native", native, "--torch-dist", out});
  std::vector<std::string> import = {"import", "--megatron", out, "--native", again};
  const std::string error = error_of([&] { run_convert(import); });
  EXPECT_THAT(error, HasSubstr("iter_0000030 holds no optimizer state"));
  EXPECT_THAT(error, HasSubstr("--weights-only leaves optimizer state behind"));
  EXPECT_FALSE(std::filesystem::exists(again));
  import.push_back("--weights-only");
  EXPECT_THAT(output_of(import), HasSubstr("15 tensors of weights are in"));
}

// Neither of them has a run to go on with.
TEST(ConvertMegatron, WeightsOfIterationZeroAndReleasesNeedNoFlag) {
  const TempFolder folder;
  const std::string native = folder / "native", out = folder / "out";
  output_of(
      {"import", "--megatron", torch_fixture("torch_dist"), "--native", native, "--weights-only"});
  output_of({"export", "--native", native, "--torch-dist", out});
  EXPECT_THAT(output_of({"import", "--megatron", out, "--native", folder / "zero"}),
              HasSubstr("15 tensors of weights are in"));

  output_of({"import", "--megatron", torch_fixture("torch_dist"), "--native", folder / "run"});
  output_of({"export", "--native", folder / "run", "--torch-dist", folder / "of_run"});
  std::filesystem::create_directory(folder / "released");
  std::filesystem::rename(folder / "of_run" / "iter_0000030", folder / "released" / "release");
  write_file(folder / "released" / "latest_checkpointed_iteration.txt", "release");
  EXPECT_THAT(
      output_of({"import", "--megatron", folder / "released", "--native", folder / "weights"}),
      HasSubstr("15 tensors of weights are in"));
}

TEST(ConvertMegatron, APaddedVocabularyHasRoomForTheVocabulary) {
  const TempFolder folder;
  const std::string native = folder / "native";
  output_of({"import", "--megatron", torch_fixture("torch_dist"), "--native", native,
             "--vocab-size", "22"});
  EXPECT_THAT(error_of([&] {
                run_convert(std::vector<std::string>{"export", "--native", native, "--torch-dist",
                                                     folder / "out", "--padded-vocab-size", "21"});
              }),
              HasSubstr("--padded-vocab-size 21 is less than the vocabulary of 22 tokens"));
  output_of(
      {"export", "--native", native, "--torch-dist", folder / "out", "--padded-vocab-size", "22"});
}

TEST(ConvertMegatron, OlderKindsAreImportedToo) {
  const TempFolder folder;
  std::vector<std::string> import = {"import", "--megatron", torch_fixture("torch"), "--native",
                                     folder / "native"};
  EXPECT_THAT(error_of([&] { run_convert(import); }), HasSubstr("holds no optimizer state"));
  import.push_back("--weights-only");
  EXPECT_THAT(output_of(import), HasSubstr("27 tensors of weights are in"));
  EXPECT_THAT(error_of([&] {
                run_convert(std::vector<std::string>{"import", "--megatron", folder.path(),
                                                     "--native", folder / "native"});
              }),
              HasSubstr("holds no checkpoint of Megatron"));
}

}  // namespace
}  // namespace phx
