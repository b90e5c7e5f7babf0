// A run names its tokenizer once; what reads its checkpoints finds it, or says where it looked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/captured.h"
#include "phalanx/base/file.h"
#include "phalanx/cli/exit_codes.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run;

class KeptTokenizer : public ::testing::Test {
 protected:
  KeptTokenizer() {
    std::filesystem::create_directories(folder_ / "home/tok");
    write_file(folder_ / "home/tok/tokenizer.json",
               R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[UNK]": 2},
                   "unk_token": "[UNK]"}, "pre_tokenizer": {"type": "Whitespace"}})");
    write_file(folder_ / "home/tok/tokenizer_config.json", R"({"eos_token": "b"})");
  }
  ~KeptTokenizer() override { std::filesystem::current_path(before_); }

  // One iteration, started in `home`.
  Outcome train(std::vector<std::string> more = {"--tokenizer-type", "HuggingFaceTokenizer",
                                                 "--tokenizer-model", "tok"}) {
    std::filesystem::current_path(folder_ / "home");
    std::vector<std::string> args = {"pretrain",
                                     "--num-layers",
                                     "1",
                                     "--hidden-size",
                                     "16",
                                     "--num-attention-heads",
                                     "2",
                                     "--seq-length",
                                     "8",
                                     "--max-position-embeddings",
                                     "16",
                                     "--position-embedding-type",
                                     "rope",
                                     "--normalization",
                                     "RMSNorm",
                                     "--swiglu",
                                     "--ffn-hidden-size",
                                     "32",
                                     "--disable-bias-linear",
                                     "--untie-embeddings-and-output-weights",
                                     "--mock-data",
                                     "--micro-batch-size",
                                     "1",
                                     "--train-iters",
                                     "1",
                                     "--lr",
                                     "1e-3",
                                     "--lr-decay-style",
                                     "constant",
                                     "--save",
                                     save_,
                                     "--save-interval",
                                     "1",
                                     "--device",
                                     "cpu",
                                     "--threads",
                                     "1"};
    args.insert(args.end(), more.begin(), more.end());
    Outcome outcome = run(args);
    std::filesystem::current_path(folder_.path());
    return outcome;
  }
  Outcome generate(const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"generate", "--load",   save_, "--device", "cpu", "--threads",
                                     "1",        "--prompt", "a",   "--tokens", "2"};
    args.insert(args.end(), more.begin(), more.end());
    return run(args);
  }

  const Path before_ = std::filesystem::current_path();
  const TempFolder folder_;
  const std::string save_ = folder_ / "ckpt";
};

TEST_F(KeptTokenizer, ARelativePathIsFoundFromAnotherFolder) {
  ASSERT_EQ(train().code, kExitDone);
  const Outcome outcome = generate();
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  const auto options = nlohmann::json::parse(read_file(save_ + "/options.json"));
  EXPECT_EQ(options.at("tokenizer_model"), (folder_ / "home/tok").string());
}

TEST_F(KeptTokenizer, TheSameTokenizerUnderAnotherPathGoesOnWithoutAWord) {
  ASSERT_EQ(train().code, kExitDone);
  const Outcome again = train({"--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model",
                               "../home/tok", "--load", save_, "--train-iters", "2"});
  EXPECT_EQ(again.code, kExitDone) << again.err;
  EXPECT_THAT(again.out, HasSubstr("iteration        2/"));
  EXPECT_THAT(again.err, Not(HasSubstr("warning")));
}

TEST_F(KeptTokenizer, AMissingOneIsToldToBeTheCheckpoints) {
  ASSERT_EQ(train().code, kExitDone);
  std::filesystem::rename(folder_ / "home/tok", folder_ / "moved");
  const Outcome outcome = generate();
  EXPECT_EQ(outcome.code, kExitFailed);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("--tokenizer-model " + (folder_ / "home/tok").string() +
                                           " is not there; the path is from " + save_),
                                 HasSubstr("hint: --tokenizer-model PATH says where it is now")));
  EXPECT_EQ(generate({"--tokenizer-model", folder_ / "moved"}).code, kExitDone);
}

TEST_F(KeptTokenizer, ARunThatTakesTheCheckpointsOptionsSaysSoToo) {
  ASSERT_EQ(train().code, kExitDone);
  std::filesystem::rename(folder_ / "home/tok", folder_ / "moved");
  const std::vector<std::string> args = {"pretrain",
                                         "--load",
                                         save_,
                                         "--use-checkpoint-args",
                                         "--data-path",
                                         "none",
                                         "--micro-batch-size",
                                         "1",
                                         "--train-iters",
                                         "2",
                                         "--lr",
                                         "1e-3",
                                         "--device",
                                         "cpu"};
  EXPECT_THAT(run(args).err, HasSubstr(" is not there; the path is from " + save_));
}

TEST_F(KeptTokenizer, IdsWithoutTextGenerateNoText) {
  ASSERT_EQ(train({"--tokenizer-type", "NullTokenizer", "--vocab-size", "32"}).code, kExitDone);
  const Outcome kept = generate();
  EXPECT_EQ(kept.code, kExitFailed);
  EXPECT_THAT(kept.err, HasSubstr("the run of --load " + save_ +
                                  " had NullTokenizer, which numbers tokens and knows no text"));
  EXPECT_THAT(generate({"--tokenizer-type", "NullTokenizer"}).err,
              HasSubstr("error: --tokenizer-type NullTokenizer, which numbers tokens"));
  EXPECT_EQ(generate({"--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model",
                      folder_ / "home/tok"})
                .code,
            kExitDone);
}

TEST_F(KeptTokenizer, AnExportTakesItAlong) {
  ASSERT_EQ(train().code, kExitDone);
  const Outcome outcome = run({"convert", "export", "--native", save_, "--hf", folder_ / "hf"});
  ASSERT_EQ(outcome.code, kExitDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("tokenizer: tokenizer.json, tokenizer_config.json from " +
                                     (folder_ / "home/tok").string()));
  EXPECT_EQ(read_file(folder_ / "hf/tokenizer.json"),
            read_file(folder_ / "home/tok/tokenizer.json"));

  std::filesystem::rename(folder_ / "home/tok", folder_ / "moved");
  const std::vector<std::string> again = {"convert", "export", "--native",
                                          save_,     "--hf",   folder_ / "again"};
  EXPECT_THAT(run(again).out, HasSubstr("is not there, so there is none beside the weights; "
                                        "--companions FOLDER takes one along"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "again/tokenizer.json"));
}

TEST_F(KeptTokenizer, AnExportLeavesAnotherTokenizerInTheSameFolderAlone) {
  std::filesystem::copy(folder_ / "home/tok/tokenizer.json", folder_ / "home/tok/words.json");
  ASSERT_EQ(
      train({"--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", "tok/words.json"})
          .code,
      kExitDone);
  const Outcome outcome = run({"convert", "export", "--native", save_, "--hf", folder_ / "hf"});
  EXPECT_THAT(outcome.out, HasSubstr("has no file that Hugging Face would look for"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "hf/tokenizer.json"));
}

TEST_F(KeptTokenizer, WhatAnImportKeptMovesWithTheCheckpoints) {
  std::filesystem::copy(PHX_TEST_DATA "/hf/llama2", folder_ / "home/llama");
  std::filesystem::copy(folder_ / "home/tok/tokenizer.json", folder_ / "home/llama");
  std::filesystem::current_path(folder_ / "home");
  ASSERT_EQ(run({"convert", "import", "--hf", "llama", "--native", "native"}).code, kExitDone);
  std::filesystem::remove_all(folder_ / "home/llama");
  std::filesystem::rename(folder_ / "home/native", save_);
  std::filesystem::current_path(folder_.path());
  const Outcome outcome = generate();
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
}

}  // namespace
}  // namespace phx
