#include "cli/plot_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/file.h"
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
    EXPECT_THAT(error_of([&] {
                  run({"--metrics", "m", "--output", "x", "--reference", reference});
                }),
                HasSubstr("should be label=value with a number"))
        << reference;
  }
}

TEST(PlotCommand, WrongUsageIsTwoAndHelpIsZero) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--output", "x.svg"}), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("--metrics"));
  testing::internal::CaptureStdout();
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("Example:"));
}

TEST(PlotCommand, AMissingFileIsNamed) {
  EXPECT_THAT(error_of([] {
                run({"--metrics", "/no/file", "--output", "x.svg"});
              }),
              HasSubstr("cannot read /no/file"));
}

}  // namespace
}  // namespace phx
