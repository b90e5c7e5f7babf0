#include "phalanx/cli/not_in_this_build.h"

#include <gtest/gtest.h>

#include <algorithm>

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

TEST(NotInThisBuild, WhatARunLacksIsANoteOfCheckArgs) {
  const Outcome outcome = run(pretrain(
      {"--train-iters", "1", "--check-args", "--log-params-norm", "--log-num-zeros-in-grad"}));
  EXPECT_EQ(outcome.code, kExitDone);
  EXPECT_TRUE(outcome.out.starts_with(
      "note: this build cannot run these yet:\n"
      "  --log-params-norm, --log-num-zeros-in-grad: this is not logged yet; leave it out\n"))
      << outcome.out;
}

TEST(NotInThisBuild, EveryOptionThatARunLacksIsNamed) {
  Texts args = pretrain({"--train-iters", "1", "--log-params-norm", "--log-num-zeros-in-grad",
                         "--use-checkpoint-opt-param-scheduler"});
  EXPECT_EQ(run(args).code, kExitUsage);
  args.push_back("--check-args");
  const Outcome outcome = run(args);
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  const std::string notes = outcome.out.substr(0, outcome.out.find("adam_beta1"));
  for (size_t i = 0; i < args.size(); ++i) {
    const bool base = i < 1 + small({}).size() + 2 || args[i] == "--check-args";
    if (base || !args[i].starts_with("--")) continue;
    EXPECT_NE(notes.find(args[i]), std::string::npos) << args[i] << "\n" << notes;
  }
}

TEST(NotInThisBuild, AnOptionIsRefusedWithItsReasonOnlyWhereItIsSet) {
  PretrainOptions options;
  EXPECT_TRUE(not_in_this_build(options).empty());
  EXPECT_EQ(format_notes({}), "");
  options.train.log_params_norm = true;
  const Problems problems = not_in_this_build(options);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].kind, ProblemKind::refused);
  EXPECT_EQ(problems[0].flag, "--log-params-norm");
  EXPECT_EQ(problems[0].text, "this is not logged yet");
}

TEST(NotInThisBuild, WhatGpusLackOfContextParallelismIsKnownFromTheFlags) {
  const auto refused = [](Texts extra) {
    Texts args = {"--train-iters", "1", "--context-parallel-size", "2", "--check-args"};
    args.insert(args.end(), extra.begin(), extra.end());
    const Outcome outcome = run(pretrain(args));
    EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
    return outcome.out.find("keys that travel is not in this build yet on GPUs") !=
           std::string::npos;
  };
  const Texts dropout = {"--device", "cuda", "--attention-dropout", "0.1"};
  EXPECT_TRUE(refused(dropout));
  EXPECT_FALSE(refused({"--device", "cpu", "--attention-dropout", "0.1"}));
  EXPECT_FALSE(refused({"--device", "cuda", "--attention-dropout", "0"}));
  EXPECT_FALSE(
      refused({"--device", "cuda", "--attention-dropout", "0.1", "--cp-comm-type", "a2a"}));
  for (const char* packs : {"--dataloader-inter-document-masking", "--reset-attention-mask"})
    EXPECT_TRUE(refused({"--device", "cuda", "--attention-dropout", "0", packs})) << packs;
}

TEST(NotInThisBuild, EveryFlagIsOneOfTheProgramAndReasonsStandTogether) {
  PretrainOptions options;
  const OptionSet set = pretrain_option_set(options);
  std::vector<std::string> reasons;
  for (const LackingOption& lacking : lacking_options()) {
    EXPECT_NE(set.find(std::string(lacking.flag).substr(2)), nullptr) << lacking.flag;
    if (reasons.empty() || reasons.back() != lacking.reason) reasons.push_back(lacking.reason);
  }
  std::ranges::sort(reasons);
  EXPECT_EQ(std::ranges::adjacent_find(reasons), reasons.end());
}

}  // namespace
}  // namespace phx
