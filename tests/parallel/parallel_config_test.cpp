#include "parallel/parallel_config.h"

#include <gtest/gtest.h>

#include "base/options.h"

namespace phx {
namespace {

TEST(ParallelConfig, MoreThanOneRankIsRefusedForEverySize) {
  ParallelConfig config;
  OptionSet options;
  options.add("Ranks", config);
  ParseReport report = options.parse(std::vector<std::string>{
      "--tensor-model-parallel-size", "2", "--context-parallel-size", "1",
      "--pipeline-model-parallel-size", "4", "--expert-model-parallel-size", "8"});
  options.check(parallel_rules(), report);
  ASSERT_EQ(report.problems.size(), 3u);
  EXPECT_EQ(report.problems[0].text,
            "--tensor-model-parallel-size 2: multi-rank training is not in this build yet");
  EXPECT_EQ(report.problems[0].hint, "use --tensor-model-parallel-size 1");
  EXPECT_EQ(report.problems[2].kind, ProblemKind::refused);
}

}  // namespace
}  // namespace phx
