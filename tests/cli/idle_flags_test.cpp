#include "phalanx/cli/idle_flags.h"

#include <gtest/gtest.h>

#include "cli/small_args.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(IdleFlags, FlagsThatAreIdleInThisRunAreNamed) {
  const ParseResult result =
      parse_pretrain(small({"--train-iters", "1", "--bf16", "--initial-loss-scale", "65536"}));
  ASSERT_TRUE(result.report.ok());
  ASSERT_EQ(result.report.implied.size(), 1u);
  EXPECT_EQ(result.report.implied[0].first, "--initial-loss-scale");
}

TEST(IdleFlags, FlagsOfRanksThatAreIdleInThisLayoutAreNamed) {
  const ParseResult result = parse_pretrain(
      small({"--train-iters", "1", "--pipeline-schedule", "zb-h1", "--ddp-bucket-size", "1000",
             "--tp-comm-overlap", "--account-for-loss-in-pipeline-split"}));
  ASSERT_TRUE(result.report.ok()) << format_problems(result.report.problems);
  EXPECT_EQ(result.report.implied.size(), 4u);
}

TEST(IdleFlags, SequenceParallelismIsSwitchedOffAtOneTensorParallelRank) {
  const ParseResult one = parse_pretrain(small({"--train-iters", "1", "--sequence-parallel"}));
  EXPECT_TRUE(one.report.ok()) << format_problems(one.report.problems);
  EXPECT_FALSE(one.options.parallel.sequence_parallel);
  EXPECT_NE(format_implied(one.report).find("--sequence-parallel"), std::string::npos);
  const ParseResult two = parse_pretrain(
      small({"--train-iters", "1", "--sequence-parallel", "--tensor-model-parallel-size", "2"}));
  EXPECT_TRUE(two.options.parallel.sequence_parallel);
  EXPECT_EQ(format_implied(two.report), "");
}

TEST(IdleFlags, PiecesOfAnMlpThatNoLayerHasAreNamed) {
  const auto implied = [](std::vector<std::string> more) {
    std::vector<std::string> flags = {"--train-iters", "1", "--mlp-chunks-for-training", "4"};
    flags.insert(flags.end(), more.begin(), more.end());
    return format_implied(parse_pretrain(small(flags)).report);
  };
  EXPECT_EQ(implied({}), "");
  EXPECT_NE(implied({"--num-experts", "4", "--moe-ffn-hidden-size", "16"})
                .find("--mlp-chunks-for-training"),
            std::string::npos);
}

TEST(IdleFlags, AnOptimizerDoesNotHaveTheOthersFlags) {
  const ParseResult result =
      parse_pretrain(small({"--train-iters", "1", "--optimizer", "sgd", "--adam-beta1", "0.8",
                            "--sgd-momentum", "0.8"}));
  ASSERT_TRUE(result.report.ok()) << format_problems(result.report.problems);
  ASSERT_EQ(result.report.implied.size(), 1u);
  EXPECT_EQ(result.report.implied[0].first, "--adam-beta1");
}

}  // namespace
}  // namespace phx
