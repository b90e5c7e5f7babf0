#include "phalanx/cli/tune_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/cli/commands.h"
#include "phalanx/cli/exit_codes.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TEST(TuneCommand, HelpShowsAnExample) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_tune(std::vector<std::string>{"--help"}), kExitDone);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("phalanx tune --config"));
}

TEST(TuneCommand, SaysThatACpuHasNothingToTune) {
  const std::vector<std::string> args = {"tune", "--num-layers",
                                         "1",    "--hidden-size",
                                         "8",    "--num-attention-heads",
                                         "2",    "--seq-length",
                                         "8",    "--max-position-embeddings",
                                         "8",    "--vocab-size",
                                         "16",   "--micro-batch-size",
                                         "1",    "--device",
                                         "cpu"};
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_phalanx(args), kExitUsage);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("nothing to tune on a CPU"));
}

}  // namespace
}  // namespace phx
