#include "phalanx/cli/plot_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "phalanx/base/file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int run(std::vector<std::string> args) { return run_plot(args); }

TEST(PlotCommand, DrawsTheCurvesOfSeveralFiles) {
  const TempFolder folder;
  make_folder(folder / "small");
  write_file(folder / "small" / "metrics.jsonl",
             "{\"iteration\":1,\"lm loss\":5}\n{\"iteration\":2,\"lm loss\":4}\n");
  write_file(folder / "other.jsonl", "{\"iteration\":1,\"lm loss\":3}\n");
  ASSERT_EQ(run({"--metrics", folder / "small" / "metrics.jsonl",
                 "large=" + (folder / "other.jsonl").string(), "--output", folder / "x.svg",
                 "--title", "Two runs", "--reference", "entropy=2.5", "--smoothing", "0"}),
            0);
  EXPECT_THAT(read_file(folder / "x.svg"),
              AllOf(HasSubstr("Two runs"), HasSubstr("small: 4.000"), HasSubstr("large: 3.000"),
                    HasSubstr("entropy (2.500)")));
}

TEST(PlotCommand, ABadReferenceShowsAGoodOne) {
  for (const char* reference : {"entropy", "entropy=", "entropy=2x", "entropy=inf"}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(run({"--metrics", "m", "--output", "x", "--reference", reference}), 2);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("should be LABEL=VALUE with a number"), HasSubstr("entropy=2.87")))
        << reference;
  }
}

TEST(PlotCommand, WrongUsageIsTwoAndHelpIsZero) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--output", "x.svg"}), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("--metrics"));
  testing::internal::CaptureStdout();
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("example:\n  phalanx plot"));
}

TEST(PlotCommand, AllProblemsAreToldAtOnce) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--metrics", "m", "--smoothing", "2", "--referense", "a=1"}), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "error: --smoothing 2 should be between 0 and 1\n"
            "  hint: share of the points to either side that the strong line averages; 0 for none\n"
            "error: --referense is no flag of this command\n"
            "  hint: did you mean --reference?\n"
            "error: --output is required: no default is right\n"
            "  hint: the SVG file to write\n");
}

TEST(PlotCommand, AMissingFileIsNamed) {
  EXPECT_THAT(error_of([] {
                run({"--metrics", "/no/file", "--output", "x.svg"});
              }),
              HasSubstr("cannot read /no/file"));
}

}  // namespace
}  // namespace phx
