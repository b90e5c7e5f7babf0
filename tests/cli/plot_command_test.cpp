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

TEST(PlotCommand, DrawsTheLoadOfExperts) {
  const TempFolder folder;
  write_file(folder / "m.jsonl",
             "{\"iteration\":1,\"router layers\":{\"3\":{\"loads\":[0.5,1.5]}}}\n"
             "{\"iteration\":2,\"router layers\":{\"3\":{\"loads\":[1,1]}}}\n");
  const auto draw = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--metrics", folder / "m.jsonl", "--output", folder / "x.svg"});
    return run(more);
  };
  testing::internal::CaptureStdout();
  EXPECT_EQ(draw({"--expert-load", "--layer", "3"}), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("x.svg: 2 experts, 2 points"));
  EXPECT_THAT(read_file(folder / "x.svg"), HasSubstr("Load of the experts of layer 3"));
  EXPECT_THAT(error_of([&] { draw({"--expert-load"}); }),
              HasSubstr("no line has loads of experts in layer 0"));

  testing::internal::CaptureStderr();
  EXPECT_EQ(draw({"--layer", "3"}), 2);
  EXPECT_EQ(draw({"--expert-load", "--smoothing", "0", "--loss", "z_loss"}), 2);
  EXPECT_EQ(draw({"--expert-load", "--metrics", "a", "b"}), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("--layer 3 "), HasSubstr("--expert-load and --smoothing 0 exclude"),
                    HasSubstr("--expert-load and --loss z_loss exclude each other"),
                    HasSubstr("--expert-load draws one run, but --metrics names 2 files")));
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
