#include "phalanx/cli/convert_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/base/file.h"
#include "phalanx/cli/pretrain_options.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string fixture(const std::string& name) { return std::string(PHX_TEST_DATA "/hf/") + name; }

struct Outcome {
  int code;
  std::string out, err;
};

Outcome run(const std::vector<std::string>& args) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  int code = -1;
  std::string thrown;
  try {
    code = run_convert(args);
  } catch (const std::exception& error) {
    thrown = error.what();
  }
  Outcome outcome{code, ::testing::internal::GetCapturedStdout(),
                  ::testing::internal::GetCapturedStderr()};
  outcome.err += thrown;
  return outcome;
}

TEST(ConvertCommand, ImportCheckExportCheck) {
  const TempFolder folder;
  const std::string native = folder / "native", out = folder / "out";
  const Outcome imported = run({"import", "--hf", fixture("gemma3"), "--native", native});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_THAT(imported.out, AllOf(HasSubstr("gemma3_text model"), HasSubstr("iter_0000000")));

  const Outcome checked = run({"check", "--hf", fixture("gemma3"), "--native", native, "--logits",
                               fixture("gemma3") + "/logits.safetensors"});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_THAT(
      checked.out,
      AllOf(HasSubstr("config: the same function"), HasSubstr("are equal, largest difference 0\n"),
            HasSubstr("against the file's logits: KL "), HasSubstr("the two are the same model")));

  const Outcome exported =
      run({"export", "--native", native, "--hf", out, "--max-shard-size", "9KB"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("as Gemma3ForCausalLM"));
  EXPECT_TRUE(std::filesystem::exists(out + "/model.safetensors.index.json"));
  EXPECT_TRUE(std::filesystem::exists(out + "/generation_config.json"));
  EXPECT_EQ(run({"check", "--hf", out, "--native", native, "--prompt-ids", "1", "2", "3"}).code, 0);
}

// transformers' fp32 RoPE is 2.3e-4 from exact logits here, of up to 9: more than rounding
// elsewhere.
TEST(ConvertCommand, ARightImportIsRightAt512Tokens) {
  const TempFolder folder;
  const std::string native = folder / "native", hf = fixture("llama_long");
  ASSERT_EQ(run({"import", "--hf", hf, "--native", native}).code, 0);
  const Outcome checked =
      run({"check", "--hf", hf, "--native", native, "--logits", hf + "/logits.safetensors"});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out, AllOf(HasSubstr("logits of 512 tokens"), HasSubstr("KL "),
                                 HasSubstr("relative error "), HasSubstr("largest difference")));
  for (const char* limit : {"--tolerance", "--kl-tolerance"})
    EXPECT_EQ(run({"check", "--hf", hf, "--native", native, "--logits", hf + "/logits.safetensors",
                   limit, "1e-12"})
                  .code,
              1)
        << limit;
}

TEST(ConvertCommand, CheckFindsAnotherModel) {
  const TempFolder folder;
  const std::string native = folder / "native";
  ASSERT_EQ(run({"import", "--hf", fixture("qwen3"), "--native", native}).code, 0);
  const Outcome rounded =
      run({"export", "--native", native, "--hf", folder / "out", "--dtype", "bf16"});
  ASSERT_EQ(rounded.code, 0) << rounded.err;
  const Outcome outcome = run({"check", "--hf", folder / "out", "--native", native});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("types differ"), HasSubstr("elements, by up to"),
                                 HasSubstr("logits of 32 tokens"), HasSubstr("the two differ")));
}

TEST(ConvertCommand, AnImportSaysWhichModelItIs) {
  const TempFolder folder;
  ASSERT_EQ(run({"import", "--hf", fixture("qwen2"), "--native", folder / "n"}).code, 0);
  EXPECT_EQ(read_file(folder / "n/latest_checkpointed_iteration.txt"), "0");
  EXPECT_EQ(read_file(folder / "n/hf_files/config.json"), read_file(fixture("qwen2/config.json")));
}

TEST(ConvertCommand, AFolderWithCheckpointsIsNotImportedInto) {
  const TempFolder folder;
  const std::string native = folder / "native";
  ASSERT_EQ(run({"import", "--hf", fixture("qwen2"), "--native", native}).code, 0);
  const std::string manifest = read_file(native + "/iter_0000000/manifest.json");
  const Outcome again = run({"import", "--hf", fixture("qwen3"), "--native", native});
  EXPECT_THAT(again.err, AllOf(HasSubstr("--native " + native + " holds checkpoints already"),
                               HasSubstr("hint: give another folder")));
  EXPECT_EQ(read_file(native + "/iter_0000000/manifest.json"), manifest);
  EXPECT_EQ(read_file(native + "/hf_files/config.json"), read_file(fixture("qwen2/config.json")));

  // The tracker of a run, whose checkpoints may be elsewhere or gone.
  const std::string run_folder = folder / "run";
  std::filesystem::create_directories(run_folder);
  write_file(run_folder + "/latest_checkpointed_iteration.txt", "100");
  EXPECT_THAT(run({"import", "--hf", fixture("qwen2"), "--native", run_folder}).err,
              HasSubstr("(latest_checkpointed_iteration.txt)"));
  EXPECT_EQ(read_file(run_folder + "/latest_checkpointed_iteration.txt"), "100");
}

TEST(ConvertCommand, WhatAStoppedImportLeftIsNoCheckpoint) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "native/iter_0000000.tmp");
  EXPECT_EQ(run({"import", "--hf", fixture("qwen2"), "--native", folder / "native"}).code, 0);
}

TEST(ConvertCommand, WrongUsageIsToldWithTheWayOut) {
  EXPECT_EQ(run({}).code, 2);
  EXPECT_THAT(run({"imprt"}).err, HasSubstr("it is import, export or check"));
  EXPECT_THAT(run({"import", "--hf", "x"}).err, HasSubstr("--native is required"));
  EXPECT_THAT(run({"export", "--native", "n", "--hf", "h", "--max-shard-size", "5XB"}).err,
              HasSubstr("--max-shard-size 5XB is no size"));
  EXPECT_THAT(run({"export", "--native", "n", "--hf", "h", "--family", "qwen"}).err,
              HasSubstr("--family qwen is not one of"));
  EXPECT_THAT(run({"import", "--hf", "/nowhere", "--native", "n"}).err,
              HasSubstr("/nowhere/config.json"));
  EXPECT_THAT(run({"export", "--help"}).out, HasSubstr("example:\n  phalanx convert export"));
}

}  // namespace
}  // namespace phx
