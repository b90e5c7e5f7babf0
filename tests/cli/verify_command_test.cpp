#include "phalanx/cli/verify_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "phalanx/cli/commands.h"
#include "phalanx/cli/exit_codes.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

Words recipe(const std::string& name) {
  std::ifstream in(std::string(PHX_TEST_DATA) + "/recipes/" + name + ".txt");
  EXPECT_TRUE(in.good()) << name;
  Words words;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream rest(line);
    for (std::string word; rest >> word;) words.push_back(word);
  }
  return words;
}

struct Result {
  int code = 0;
  std::string out, err;
};

Result verify(Words args, const Words& more = {}) {
  args.insert(args.begin(), "verify");
  args.insert(args.end(), more.begin(), more.end());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Result result;
  result.code = run_phalanx(args);
  result.out = testing::internal::GetCapturedStdout();
  result.err = testing::internal::GetCapturedStderr();
  return result;
}

TEST(VerifyCommand, ProvesPublicRecipes) {
  const Result gpt3 = verify(recipe("gpt3_175b"), {"--world-size", "1024"});
  EXPECT_EQ(gpt3.code, kExitDone) << gpt3.err;
  EXPECT_THAT(gpt3.out, HasSubstr("layout: TP 8 x PP 16 x DP 8 = 1024 ranks\n"));
  EXPECT_THAT(gpt3.out, HasSubstr("shrunk: TP 8 -> 2, PP 16 -> 4, DP 8 -> 2, layers 96 -> 4, "));
  EXPECT_THAT(gpt3.out, HasSubstr("proof:  TP 2 x PP 4 x DP 2 = 16 ranks, threads"));
  EXPECT_THAT(gpt3.out, HasSubstr("\nproved: 16 ranks compute what one rank computes"));

  const Result llama = verify(recipe("aws_llama2_70b"));
  EXPECT_EQ(llama.code, kExitDone) << llama.err;
  EXPECT_THAT(llama.out, HasSubstr("layout: TP 4 x PP 4 x DP 2 = 32 ranks\n"));
  EXPECT_THAT(llama.out, HasSubstr("query groups 8 -> 4"));

  const Result europa = verify(recipe("europa_33b"));  // interleaved, recomputed
  EXPECT_EQ(europa.code, kExitDone) << europa.err;
  EXPECT_THAT(europa.out, HasSubstr("chunks a stage 7 -> 2"));
}

TEST(VerifyCommand, ProvesAFileWithFlagsOnTop) {
  const std::string file = std::string(PHX_TEST_DATA) + "/configs/gemma2_2b.yaml";
  const Result result =
      verify({"--config", file, "--tensor-model-parallel-size", "2", "--verbose"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("proof:  TP 2 x PP 1 x DP 2 = 4 ranks"));
  EXPECT_THAT(result.out, HasSubstr("all of them, the worst first\n"));
  EXPECT_THAT(result.out,
              HasSubstr("gradient of decoder.layers.0.mlp.linear_fc2.post_layernorm.weight"));
}

TEST(VerifyCommand, ProvesContextParallelRanksOfAnyNumber) {
  for (const char* cp : {"4", "5"}) {
    const Words flags = {"--context-parallel-size",   cp,    "--seq-length", "8000",
                         "--max-position-embeddings", "8000"};
    const Result result = verify(recipe("llama32_1b"), flags);
    EXPECT_EQ(result.code, kExitDone) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("proof:  TP 1 x CP " + std::string(cp) + " x PP 1 x DP 2"));
  }
}

TEST(VerifyCommand, ABatchThatGrowsIsProvedWithOneSize) {
  Words flags = recipe("llama32_1b");
  const auto batch = std::ranges::find(flags, "--global-batch-size");
  ASSERT_NE(batch, flags.end());
  flags.erase(batch, batch + 2);
  const Result result = verify(flags, {"--step-batch-size-schedule", "0:8 100K:16"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("batch 0:8 100K:16 -> 6"));
}

TEST(VerifyCommand, ProvesThatARunResumesToTheByte) {
  const Result llama = verify(recipe("aws_llama2_70b"), {"--resume"});
  EXPECT_EQ(llama.code, kExitDone) << llama.out << llama.err;
  EXPECT_THAT(llama.out, HasSubstr("threads of this process, resumed after a stop"));
  EXPECT_THAT(llama.out, HasSubstr("proved: losses and norms of 6 iterations and "));
  EXPECT_THAT(llama.out, HasSubstr("are the same to the byte\n"));
  // A state that is left behind is seen.
  const Result without = verify(recipe("aws_llama2_70b"), {"--resume", "--no-load-optim"});
  EXPECT_EQ(without.code, kExitFailed);
  EXPECT_THAT(without.out, HasSubstr("not proved: a stop in the middle changes the run\n"));
}

TEST(VerifyCommand, AWrongLayoutIsToldBeforeAnythingRuns) {
  const Result result =
      verify(recipe("gpt3_175b"), {"--tensor-model-parallel-size", "7", "--world-size", "100",
                                   "--num-layers-per-virtual-pipeline-stage", "4"});
  EXPECT_EQ(result.code, kExitUsage);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("there are 100 ranks, which is not a multiple of TP 7 x PP 16"),
                    HasSubstr("--num-attention-heads 96 is not a multiple of "
                              "--tensor-model-parallel-size 7"),
                    HasSubstr("--num-layers-per-virtual-pipeline-stage 4")));
}

TEST(VerifyCommand, ProblemsOfItsOwnFlagsAreToldWithTheOthers) {
  const Result result =
      verify(recipe("llama32_1b"), {"--world-size", "none", "--hidden-sice", "3"});
  EXPECT_EQ(result.code, kExitUsage);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--world-size none"), HasSubstr("--hidden-sice")));
  EXPECT_EQ(verify(recipe("llama32_1b"), {"--world-size"}).code, kExitUsage);
}

TEST(VerifyCommand, TakesACommandLineOfPretrainAsItIs) {
  const Words run = {"--num-layers",
                     "2",
                     "--hidden-size",
                     "32",
                     "--num-attention-heads",
                     "4",
                     "--seq-length",
                     "16",
                     "--max-position-embeddings",
                     "16",
                     "--micro-batch-size",
                     "1",
                     "--global-batch-size",
                     "4",
                     "--lr",
                     "1e-3",
                     "--vocab-size",
                     "100",
                     "--train-iters",
                     "5",
                     "--data-path",
                     "nowhere",
                     "--local-ranks",
                     "4",
                     "--tensor-model-parallel-size",
                     "2",
                     "--sequence-parallel",
                     "--save",
                     "there",
                     "--save-interval",
                     "5",
                     "--bf16",
                     "--threads",
                     "1",
                     "--use-mcore-models",
                     "--metrics-file",
                     "m.jsonl",
                     "--check-args",
                     "--profile",
                     "--profile-ranks",
                     "3",
                     "--sft-packing",
                     "in-order"};
  const Result result = verify(run);
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("layout: TP 2 x PP 1 x DP 2 = 4 ranks\n"));
  EXPECT_THAT(result.out,
              HasSubstr("without meaning for phalanx verify: --data-path, --metrics-file, "
                        "--check-args, --profile, --profile-ranks, --save, --save-interval, "
                        "--threads, --bf16, --use-mcore-models\n"));
  // Here another world is asked for: --local-ranks has no meaning, and is no error.
  const Result other = verify(run, {"--world-size", "2"});
  EXPECT_EQ(other.code, kExitDone) << other.err;
  EXPECT_THAT(other.out, AllOf(HasSubstr("= 2 ranks\n"), HasSubstr("--local-ranks")));
}

TEST(VerifyCommand, HelpShowsAnExample) {
  const Result result = verify({"--help"});
  EXPECT_EQ(result.code, kExitDone);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("--world-size"), HasSubstr("--verbose"),
                    HasSubstr("example:\n  phalanx verify"), Not(HasSubstr("--hidden-dropout"))));
}

}  // namespace
}  // namespace phx
