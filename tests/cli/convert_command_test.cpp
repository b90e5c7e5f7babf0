#include "phalanx/cli/convert_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/converted.h"
#include "phalanx/base/file.h"
#include "phalanx/cli/pretrain_options.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ConvertCommand, ImportCheckExportCheck) {
  const TempFolder folder;
  const std::string native = folder / "native", out = folder / "out";
  const Converted imported = convert({"import", "--hf", fixture("gemma3"), "--native", native});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_THAT(imported.out, AllOf(HasSubstr("gemma3_text model"), HasSubstr("iter_0000000")));

  const Converted checked = convert({"check", "--hf", fixture("gemma3"), "--native", native,
                                     "--logits", fixture("gemma3") + "/logits.safetensors"});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_THAT(
      checked.out,
      AllOf(HasSubstr("config: the same function"), HasSubstr("are equal, largest difference 0\n"),
            HasSubstr("against the file's logits: KL "), HasSubstr("the two are the same model")));

  const Converted exported =
      convert({"export", "--native", native, "--hf", out, "--max-shard-size", "9KB"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("as Gemma3ForCausalLM"));
  EXPECT_TRUE(std::filesystem::exists(out + "/model.safetensors.index.json"));
  EXPECT_TRUE(std::filesystem::exists(out + "/generation_config.json"));
  EXPECT_EQ(convert({"check", "--hf", out, "--native", native, "--prompt-ids", "1", "2", "3"}).code,
            0);
}

TEST(ConvertCommand, AnImportSaysWhichModelItIs) {
  const TempFolder folder;
  ASSERT_EQ(convert({"import", "--hf", fixture("qwen2"), "--native", folder / "n"}).code, 0);
  EXPECT_EQ(read_file(folder / "n/latest_checkpointed_iteration.txt"), "0");
  EXPECT_EQ(read_file(folder / "n/hf_files/config.json"), read_file(fixture("qwen2/config.json")));
}

TEST(ConvertCommand, AFolderWithCheckpointsIsNotImportedInto) {
  const TempFolder folder;
  const std::string native = folder / "native";
  ASSERT_EQ(convert({"import", "--hf", fixture("qwen2"), "--native", native}).code, 0);
  const std::string manifest = read_file(native + "/iter_0000000/manifest.json");
  const Converted again = convert({"import", "--hf", fixture("qwen3"), "--native", native});
  EXPECT_THAT(again.err, AllOf(HasSubstr("--native " + native + " holds checkpoints already"),
                               HasSubstr("hint: give another folder")));
  EXPECT_EQ(read_file(native + "/iter_0000000/manifest.json"), manifest);
  EXPECT_EQ(read_file(native + "/hf_files/config.json"), read_file(fixture("qwen2/config.json")));

  // The tracker of a run, whose checkpoints may be elsewhere or gone.
  const std::string run_folder = folder / "run";
  std::filesystem::create_directories(run_folder);
  write_file(run_folder + "/latest_checkpointed_iteration.txt", "100");
  EXPECT_THAT(convert({"import", "--hf", fixture("qwen2"), "--native", run_folder}).err,
              HasSubstr("(latest_checkpointed_iteration.txt)"));
  EXPECT_EQ(read_file(run_folder + "/latest_checkpointed_iteration.txt"), "100");
}

TEST(ConvertCommand, WhatAStoppedImportLeftIsNoCheckpoint) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "native/iter_0000000.tmp");
  EXPECT_EQ(convert({"import", "--hf", fixture("qwen2"), "--native", folder / "native"}).code, 0);
}

TEST(ConvertCommand, WrongUsageIsToldWithTheWayOut) {
  EXPECT_EQ(convert({}).code, 2);
  EXPECT_THAT(convert({"imprt"}).err, HasSubstr("it is import, export or check"));
  EXPECT_THAT(convert({"import", "--hf", "x"}).err, HasSubstr("--native is required"));
  EXPECT_THAT(convert({"export", "--native", "n", "--hf", "h", "--max-shard-size", "5XB"}).err,
              HasSubstr("--max-shard-size 5XB is no size"));
  EXPECT_THAT(convert({"export", "--native", "n", "--hf", "h", "--family", "qwen"}).err,
              HasSubstr("--family qwen is not one of"));
  EXPECT_THAT(convert({"import", "--hf", "/nowhere", "--native", "n"}).err,
              HasSubstr("/nowhere/config.json"));
  EXPECT_THAT(convert({"export", "--help"}).out, HasSubstr("example:\n  phalanx convert export"));
}

}  // namespace
}  // namespace phx
