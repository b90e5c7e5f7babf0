#include "phalanx/parallel/parallel_config.h"

#include <gtest/gtest.h>

#include "phalanx/base/options.h"

namespace phx {
namespace {

TEST(ParallelConfig, ContextParallelismTakesAWayForEachLayerAndTwoSizes) {
  ParallelConfig config;
  OptionSet options;
  options.add("Ranks", config);
  ParseReport report = options.parse(
      std::vector<std::string>{"--context-parallel-size", "4", "--cp-comm-type", "a2a", "a2a+p2p",
                               "--hierarchical-context-parallel-sizes", "2", "2"});
  options.check(parallel_rules(), report);
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(config.cp_comm_type, (std::vector<std::string>{"a2a", "a2a+p2p"}));
  EXPECT_EQ(config.hierarchical_context_parallel_sizes, (std::vector<int64_t>{2, 2}));

  OptionSet others;
  others.add("Ranks", config);
  report = others.parse(std::vector<std::string>{"--cp-comm-type", "ring"});
  EXPECT_EQ(report.problems.size(), 1u);
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
