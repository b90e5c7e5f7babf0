#include "phalanx/cli/launch_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <vector>

#include "phalanx/cli/exit_codes.h"
#include "phalanx/comm/launch_environment.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;

// The program that launch starts is this one, and all it does there is the first test.
const std::string kRank = "--gtest_filter=LaunchCommand.OnlyALaunchedRankHasARank";

TEST(LaunchCommand, OnlyALaunchedRankHasARank) {
  const auto environment = launch_environment();
  ASSERT_EQ(environment.has_value(), std::getenv("TEST_LAUNCHED") != nullptr);
  if (!environment) return;
  EXPECT_EQ(environment->launcher, "phalanx launch");
  std::cout << "hello from " << environment->rank << " of " << environment->size << std::endl;
  std::cerr << "a word of " << environment->rank << std::endl;
  if (const char* fails = std::getenv("TEST_FAILING_RANK")) {
    EXPECT_NE(std::to_string(environment->rank), fails);
  }
}

struct Said {
  int code;
  std::string out, error;
};
Said run(const std::vector<std::string>& args) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  ::setenv("TEST_LAUNCHED", "1", 1);
  const int code = run_launch(args);
  ::unsetenv("TEST_LAUNCHED");
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

TEST(LaunchCommand, MarksTheOutputOfAllButRankZero) {
  const Said said = run({"--nproc", "3", "--", kRank});
  EXPECT_EQ(said.code, kExitDone) << said.error;
  EXPECT_THAT(said.out,
              AllOf(HasSubstr("\nhello from 0 of 3\n"), HasSubstr("\n[1] hello from 1 of "),
                    HasSubstr("\n[2] hello from 2 of 3\n")));
  EXPECT_THAT(said.error, AllOf(HasSubstr("[0] a word of 0\n"), HasSubstr("[2] a word of 2\n")));
}

TEST(LaunchCommand, NamesTheFirstRankThatFails) {
  ::setenv("TEST_FAILING_RANK", "1", 1);
  const Said said = run({"--nproc=2", "--", kRank});
  ::unsetenv("TEST_FAILING_RANK");
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.error, HasSubstr("error: rank 1 ended with exit code 1, first of all\n"));
}

TEST(LaunchCommand, RanksOfASecondMachineBeginLater) {
  ::setenv("PHX_JOB_KEY", "0123456789abcdef", 1);
  const Said said = run({"--nproc", "1", "--nnodes", "2", "--node-rank", "1", "--master-addr",
                         "localhost", "--master-port", "29700", "--", kRank});
  ::unsetenv("PHX_JOB_KEY");
  EXPECT_THAT(said.out, HasSubstr("[1] hello from 1 of 2\n"));
}

TEST(LaunchCommand, SeveralMachinesNeedAKeyAndOneIsMadeToCopy) {
  const std::vector<std::string> args = {
      "--nproc",       "1",     "--nnodes", "2",  "--master-addr", "localhost",
      "--master-port", "29700", "--",       kRank};
  EXPECT_THAT(run(args).error,
              AllOf(HasSubstr("--nnodes 2 needs PHX_JOB_KEY in the environment: a secret that is "
                              "the same on every machine"),
                    ContainsRegex("export PHX_JOB_KEY=[0-9a-f]{32}")));
  ::setenv("PHX_JOB_KEY", "secret", 1);
  EXPECT_THAT(run(args).error, HasSubstr("PHX_JOB_KEY has 6 characters, but needs at least 16"));
  ::unsetenv("PHX_JOB_KEY");
}

TEST(LaunchCommand, MoreRanksThanTheMachineHasRoomForAreRefused) {
  const Said said = run({"--nproc", "100000000", "--", kRank});
  EXPECT_EQ(said.code, kExitUsage);
  EXPECT_THAT(said.error,
              AllOf(HasSubstr("--nproc 100000000: that many processes take at least 5.96 PiB"),
                    ContainsRegex("hint: at most [0-9]+ fit, and this machine has [0-9]+ core")));
}

TEST(LaunchCommand, ItsOwnProblemsAndThoseOfTheCommandAreToldAtOnce) {
  const Said said = run({"--nproc", "100000000", "--node-rank", "3", "pretrain", "--hidden-size",
                         "33", "--num-attention-heads", "4"});
  EXPECT_EQ(said.code, kExitUsage);
  EXPECT_THAT(said.error, AllOf(HasSubstr("error: --node-rank 3 is not below --nnodes 1"),
                                HasSubstr("error: --nproc 100000000: that many processes"),
                                HasSubstr("error: --num-layers is required"),
                                HasSubstr("error: --hidden-size 33 is not a multiple of ")));
}

TEST(LaunchCommand, AUsageErrorOfTheCommandIsSaidOnce) {
  const Said said = run({"--nproc", "4", "pretrain", "--no-such-flag", "1"});
  EXPECT_EQ(said.code, kExitUsage);
  const size_t at = said.error.find("--no-such-flag");
  ASSERT_NE(at, std::string::npos) << said.error;
  EXPECT_EQ(said.error.find("--no-such-flag", at + 1), std::string::npos) << said.error;
  EXPECT_THAT(run({"--nproc", "4", "pretran"}).error,
              Eq("error: pretran is no command of phalanx\n  hint: did you mean pretrain?\n"));
  const Said help = run({"--nproc", "4", "pretrain", "--help"});
  EXPECT_EQ(help.code, kExitDone);
  EXPECT_THAT(help.out, Not(HasSubstr("[1] ")));
}

TEST(LaunchCommand, WrongUsageIsTwoAndHelpIsZero) {
  EXPECT_THAT(run({"--nproc", "0", "--nnodes", "2", "--node-rank", "2", "pretrain"}).error,
              AllOf(HasSubstr("--nproc 0 should be positive"),
                    HasSubstr("--node-rank 2 is not below --nnodes 2"),
                    HasSubstr("--nnodes 2 needs --master-addr"),
                    HasSubstr("--nnodes 2 needs --master-port")));
  EXPECT_EQ(run({"pretrain"}).code, kExitUsage);
  EXPECT_THAT(error_of([] {
                run_launch(std::vector<std::string>{"--nproc", "2"});
              }),
              HasSubstr("launch: no command to start"));
  const Said help = run({"--help"});
  EXPECT_EQ(help.code, kExitDone);
  EXPECT_THAT(help.out, HasSubstr("phalanx launch --nproc 4 pretrain --config recipe.yaml"));
}

}  // namespace
}  // namespace phx
