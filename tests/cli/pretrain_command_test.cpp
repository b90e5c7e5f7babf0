#include "phalanx/cli/pretrain_command.h"

#include <gtest/gtest.h>

#include "cli/captured.h"
#include "cli/small_args.h"
#include "phalanx/cli/exit_codes.h"

namespace phx {
namespace {

using namespace phx::testing;

Texts pretrain(Texts extra) {
  Texts args = small(std::move(extra));
  args.insert(args.begin(), "pretrain");
  return args;
}

TEST(PretrainCommand, CheckArgsPrintsTheTableAndSucceeds) {
  Texts args = small({"--train-iters", "1", "--check-args", "--use-mcore-models"});
  args.insert(args.begin(), "pretrain");
  const Outcome outcome = run(args);
  EXPECT_EQ(outcome.code, kExitDone);
  EXPECT_TRUE(outcome.out.starts_with("taken without effect"));
  EXPECT_NE(outcome.out.find("  hidden_size ...................................."),
            std::string::npos);
  EXPECT_EQ(outcome.err, "");
}

TEST(PretrainCommand, WhatARunLacksIsToldWithEverythingElseAndExitsWithTwo) {
  const Outcome outcome = run(pretrain({"--log-params-norm", "--vocab-file", "v", "--lr", "-1"}));
  EXPECT_EQ(outcome.code, kExitUsage);
  for (const char* part :
       {"error: --lr -1 should be positive\n", "error: one of --train-iters and --train-samples",
        "error: --log-params-norm: this is not logged yet\n"}) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << outcome.err;
  }
  EXPECT_EQ(outcome.out, "");
}

std::optional<int> answered(const Texts& args, int64_t world) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const auto code = answer_pretrain(args, world, standard_catalogue());
  ::testing::internal::GetCapturedStdout();
  ::testing::internal::GetCapturedStderr();
  return code;
}

TEST(PretrainCommand, ALauncherAnswersWhatNeedsNoRun) {
  EXPECT_EQ(answered(small({"--help"}), 2), kExitDone);
  EXPECT_EQ(answered(small({"--train-iters", "1", "--check-args"}), 2), kExitDone);
  EXPECT_EQ(answered(small({"--train-iters", "0x"}), 2), kExitUsage);
  EXPECT_EQ(answered(small({"--train-iters", "1"}), 2), std::nullopt) << "the ranks should start";
}

TEST(PretrainCommand, ARunWithMaskedTokensSaysWhichAverageItTrains) {
  const auto log = [](Texts extra) {
    extra.insert(extra.end(), {"--train-iters", "1", "--device", "cpu", "--threads", "1"});
    const Outcome outcome = run(pretrain(std::move(extra)));
    EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
    return outcome.out;
  };
  const std::string masked = log({"--eod-mask-loss"});
  EXPECT_NE(masked.find("note: --eod-mask-loss masks tokens, and the loss is the mean over all "
                        "other tokens of the batch (--calculate-per-token-loss); --loss-average "
                        "micro-batch trains Megatron's default"),
            std::string::npos)
      << masked;
  EXPECT_EQ(masked.find("note:"), masked.rfind("note:"));
  for (const Texts& stated : {Texts{"--eod-mask-loss", "--loss-average", "micro-batch"},
                              Texts{"--eod-mask-loss", "--loss-average", "token"},
                              Texts{"--eod-mask-loss", "--calculate-per-token-loss"}, Texts{}})
    EXPECT_EQ(log(stated).find("note:"), std::string::npos);
  EXPECT_NE(parse_pretrain(small({"--train-iters", "1", "--sft"})).note.find("--sft masks"),
            std::string::npos);
}

TEST(PretrainCommand, ATokenizerThatCannotBeReadIsToldByARunAlone) {
  Texts args = pretrain({"--train-iters", "1", "--tokenizer-type", "HuggingFaceTokenizer",
                         "--tokenizer-model", "/no/such/tokenizer"});
  std::erase(args, "--vocab-size");
  std::erase(args, "100");
  const Outcome outcome = run(args);
  EXPECT_EQ(outcome.code, kExitFailed) << outcome.out;
  EXPECT_NE(outcome.err.find("/no/such/tokenizer"), std::string::npos) << outcome.err;
  args.push_back("--check-args");
  EXPECT_EQ(run(args).code, kExitDone);
}

}  // namespace
}  // namespace phx
