// Runs that begin from Hugging Face folders, and write them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/checkpoint/compare.h"
#include "phalanx/cli/convert_command.h"
#include "phalanx/cli/generate_command.h"
#include "phalanx/cli/pretrain_command.h"
#include "phalanx/cli/pretrain_options.h"
#include "phalanx/convert/hf_model.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string fixture(const std::string& name) { return std::string(PHX_TEST_DATA "/hf/") + name; }

// A run of two iterations that changes no weight.
std::vector<std::string> run_of(const std::string& folder,
                                const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {"--load",
                                   folder,
                                   "--seq-length",
                                   "16",
                                   "--mock-data",
                                   "--train-iters",
                                   "2",
                                   "--lr",
                                   "1e-30",
                                   "--micro-batch-size",
                                   "1",
                                   "--global-batch-size",
                                   "2",
                                   "--weight-decay",
                                   "0",
                                   "--lr-decay-style",
                                   "constant",
                                   "--device",
                                   "cpu",
                                   "--eval-iters",
                                   "0"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::string problems_of(const ParseResult& result) {
  return format_problems(result.report.problems);
}

TEST(HfLoad, TheFolderFillsTheOptionsOfTheModel) {
  const ParseResult result = parse_pretrain(run_of(fixture("gemma3")));
  ASSERT_TRUE(result.report.ok()) << problems_of(result);
  const TransformerConfig& model = result.options.model;
  EXPECT_EQ(model.num_layers, 4);
  EXPECT_EQ(model.vocab_size, 53);
  EXPECT_EQ(model.seq_length, 16);
  EXPECT_TRUE(model.geglu);
  EXPECT_EQ(model.layer_window(2), std::nullopt);
}

TEST(HfLoad, AFlagThatContradictsIsAnErrorWithBothValues) {
  const std::vector<std::string> other = {"--num-layers", "3", "--rotary-base", "500"};
  const ParseResult result = parse_pretrain(run_of(fixture("llama2"), other));
  EXPECT_THAT(problems_of(result),
              AllOf(HasSubstr("--num-layers: 3 and 2 in " + fixture("llama2/config.json")),
                    HasSubstr("--rotary-base: 500 and 10000"), HasSubstr("--use-checkpoint-args")));
}

TEST(HfLoad, WithUseCheckpointArgsTheFolderWins) {
  const ParseResult result =
      parse_pretrain(run_of(fixture("llama2"), {"--num-layers", "3", "--use-checkpoint-args"}));
  ASSERT_TRUE(result.report.ok()) << problems_of(result);
  EXPECT_EQ(result.options.model.num_layers, 2);
}

TEST(HfLoad, AFlagThatSaysTheSameIsFine) {
  const ParseResult result =
      parse_pretrain(run_of(fixture("llama2"), {"--num-layers", "2", "--swiglu"}));
  EXPECT_TRUE(result.report.ok()) << problems_of(result);
}

TEST(HfLoad, AFolderThatCannotBeTakenIsToldBeforeTheRun) {
  const TempFolder folder;
  make_folder(folder / "sinks");
  write_file(folder / "sinks/config.json", "{\"architectures\": [\"GptOssForCausalLM\"]}");
  EXPECT_THAT(problems_of(parse_pretrain(run_of(folder / "sinks"))),
              HasSubstr("this build does not have: attention sinks"));
}

TEST(HfLoad, WhatNoFamilyCanSayIsToldBeforeTheRun) {
  const ParseResult result = parse_pretrain(std::vector<std::string>{"--num-layers",
                                                                     "2",
                                                                     "--hidden-size",
                                                                     "16",
                                                                     "--num-attention-heads",
                                                                     "4",
                                                                     "--seq-length",
                                                                     "16",
                                                                     "--max-position-embeddings",
                                                                     "16",
                                                                     "--vocab-size",
                                                                     "53",
                                                                     "--mock-data",
                                                                     "--train-iters",
                                                                     "2",
                                                                     "--lr",
                                                                     "1",
                                                                     "--micro-batch-size",
                                                                     "1",
                                                                     "--squared-relu",
                                                                     "--save",
                                                                     "x",
                                                                     "--save-interval",
                                                                     "1",
                                                                     "--save-hf-interval",
                                                                     "2"});
  EXPECT_THAT(problems_of(result), AllOf(HasSubstr("--save-hf-interval: no family"),
                                         HasSubstr("--squared-relu: true and false")));
}

// A step moves biases of experts whatever the learning rate is.
std::vector<std::string> without_moving_biases(const std::string& name) {
  if (!name.starts_with("deepseek_v3")) return {};
  return {"--moe-router-bias-update-rate", "0"};
}

// Loads a fixture into a run of two iterations, and compares what the run writes with it.
void expect_unchanged_by_a_run(const char* name, const std::vector<std::string>& layout) {
  const TempFolder folder;
  std::vector<std::string> args =
      run_of(fixture(name), {"--save", folder / "out", "--save-interval", "1", "--save-hf-interval",
                             "2", "--attention-dropout", "0", "--hidden-dropout", "0"});
  args.insert(args.end(), layout.begin(), layout.end());
  for (const std::string& arg : without_moving_biases(name)) args.push_back(arg);
  ::testing::internal::CaptureStdout();
  const int code = run_pretrain(args);
  const std::string out = ::testing::internal::GetCapturedStdout();
  ASSERT_EQ(code, 0) << out;
  EXPECT_THAT(out, HasSubstr("loaded the weights of " + fixture(name)));
  const Path written = folder / "out/hf/iter_0000002";
  ASSERT_TRUE(std::filesystem::exists(written)) << out;
  EXPECT_FALSE(std::filesystem::exists(folder / "out/hf/iter_0000001"));
  const auto found = differences(*HfModel(written).tensors, *HfModel(fixture(name)).tensors);
  EXPECT_TRUE(found.empty()) << found.front().name << " " << found.front().what;
  EXPECT_TRUE(std::filesystem::exists(written / "generation_config.json"));
}

// The weights go through four ranks, a native checkpoint and back, untouched.
TEST(HfLoad, ARunLoadsAndWritesFoldersUnderAnyLayout) {
  const std::vector<std::vector<std::string>> layouts = {
      {},
      {"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"},
      {"--local-ranks", "2", "--use-distributed-optimizer", "--async-save"}};
  for (const char* name : {"gpt2", "gemma2"})
    for (const auto& layout : layouts) expect_unchanged_by_a_run(name, layout);
}

TEST(HfLoad, ExpertsAreLoadedAndWrittenUnderAnyLayout) {
  const std::vector<std::vector<std::string>> layouts = {
      {},
      {"--local-ranks", "4", "--tensor-model-parallel-size", "2", "--sequence-parallel",
       "--expert-model-parallel-size", "2", "--expert-tensor-parallel-size", "2"},
      {"--local-ranks", "4", "--tensor-model-parallel-size", "2", "--sequence-parallel",
       "--expert-model-parallel-size", "2", "--expert-tensor-parallel-size", "1",
       "--moe-token-dispatcher-type", "alltoall", "--use-distributed-optimizer"}};
  for (const char* name : {"mixtral", "qwen2_moe", "qwen3_moe_old", "olmoe", "deepseek_v2",
                           "deepseek_v2_groups", "deepseek_v3"})
    for (const auto& layout : layouts) expect_unchanged_by_a_run(name, layout);
}

// Loading cuts the experts over ranks: the losses of four ranks are those of one.
void expect_the_same_losses_on_four_ranks(const char* name) {
  const auto losses = [&](const std::vector<std::string>& layout) {
    ::testing::internal::CaptureStdout();
    std::vector<std::string> args = run_of(fixture(name), {"--log-interval", "1"});
    args.insert(args.end(), layout.begin(), layout.end());
    const int code = run_pretrain(args);
    const std::string out = ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(code, 0) << out;
    std::vector<double> values;
    const std::string key = "lm loss: ";
    for (size_t at = out.find(key); at != std::string::npos; at = out.find(key, at + 1))
      values.push_back(std::stod(out.substr(at + key.size())));
    return values;
  };
  const std::vector<double> one = losses({});
  const std::vector<double> four =
      losses({"--local-ranks", "4", "--tensor-model-parallel-size", "2", "--sequence-parallel",
              "--expert-model-parallel-size", "2", "--expert-tensor-parallel-size", "2"});
  ASSERT_EQ(one.size(), 2u);
  ASSERT_EQ(four.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(one[i], four[i], 1e-5);
}

TEST(HfLoad, TheLossOfLoadedExpertsIsTheSameOnFourRanks) {
  for (const char* name : {"mixtral", "olmoe", "deepseek_v3"})
    expect_the_same_losses_on_four_ranks(name);
}

TEST(HfLoad, AnImportedCheckpointIsLoadedAsWeights) {
  const TempFolder folder;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_convert(std::vector<std::string>{"import", "--hf", fixture("qwen3"), "--native",
                                                 folder / "native"}),
            0);
  const int code = run_pretrain(run_of(folder / "native", {"--use-checkpoint-args"}));
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  EXPECT_THAT(out, HasSubstr("loaded the weights of " + (folder / "native").string()));
}

TEST(HfLoad, GenerateReadsAFolderWithItsTokenizer) {
  const TempFolder folder;
  std::filesystem::copy(fixture("qwen2"), folder / "model");
  const std::vector<std::string> args = {
      "--load", folder / "model", "--prompt", "a b",           "--tokens",
      "5",      "--device",       "cpu",      "--temperature", "0"};
  EXPECT_THAT(error_of([&] { run_generate(args); }),
              AllOf(HasSubstr("does not say which tokenizer"), HasSubstr("--tokenizer-model")));
  std::string vocabulary;
  for (int i = 0; i < 53; ++i) {
    const std::string word = i < 2 ? std::string(1, char('a' + i)) : "w" + std::to_string(i);
    vocabulary += (i > 0 ? ", \"" : "\"") + word + "\": " + std::to_string(i);
  }
  write_file(folder / "model/tokenizer.json",
             "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, "
             "\"pre_tokenizer\": {\"type\": \"Whitespace\"}, \"post_processor\": null, "
             "\"decoder\": null, \"model\": {\"type\": \"WordLevel\", \"vocab\": {" +
                 vocabulary + "}, \"unk_token\": \"a\"}}");
  ::testing::internal::CaptureStdout();
  const int code = run_generate(args);
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(out.starts_with("a b")) << out;
  EXPECT_GT(out.size(), std::string("a b\n").size() + 5) << out;  // five words more
}

}  // namespace
}  // namespace phx
