#include "phalanx/cli/inspect_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/captured.h"
#include "phalanx/cli/exit_codes.h"

namespace phx {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run;

TEST(InspectCommand, TheFirstWordSaysTheKind) {
  EXPECT_THAT(run({"inspect", "data", "--help"}).out, HasSubstr("phalanx inspect data"));
  EXPECT_THAT(run({"inspect", "checkpoint", "--help"}).out,
              HasSubstr("phalanx inspect checkpoint"));
}

TEST(InspectCommand, AnotherWordIsNamedAndTheKindsAreListed) {
  const Outcome outcome = run({"inspect", "entrails"});
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_TRUE(outcome.err.starts_with("error: entrails is no kind that could be inspected\n"));
  EXPECT_THAT(outcome.err, HasSubstr("  data        "));
  EXPECT_THAT(outcome.err, HasSubstr("  checkpoint  "));
  EXPECT_EQ(run({"inspect"}).code, kExitUsage);
  EXPECT_EQ(run({"inspect", "-h"}).code, kExitDone);
}

}  // namespace
}  // namespace phx
