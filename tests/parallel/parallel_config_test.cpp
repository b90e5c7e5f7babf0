#include "phalanx/parallel/parallel_config.h"

#include <gtest/gtest.h>

#include "phalanx/base/options.h"

namespace phx {
namespace {

TEST(ParallelConfig, ContextParallelismIsRefused) {
  ParallelConfig config;
  OptionSet options;
  options.add("Ranks", config);
  ParseReport report = options.parse(
      std::vector<std::string>{"--tensor-model-parallel-size", "2", "--context-parallel-size", "2",
                               "--pipeline-model-parallel-size", "4"});
  options.check(parallel_rules(), report);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].text,
            "--context-parallel-size 2: this kind of parallelism is not in this build yet");
  EXPECT_EQ(report.problems[0].hint, "use --context-parallel-size 1");
  EXPECT_EQ(report.problems[0].kind, ProblemKind::refused);
}

TEST(ParallelConfig, OverlappedGathersNeedAShardedOptimizerInBuckets) {
  ParallelConfig config;
  OptionSet options;
  options.add("Ranks", config);
  ParseReport report = options.parse(std::vector<std::string>{"--overlap-param-gather"});
  options.check(parallel_rules(), report);
  EXPECT_EQ(report.problems.size(), 2u);
}

}  // namespace
}  // namespace phx
