#include "phalanx/plan/memory_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/countable_run.h"

namespace phx {
namespace {

using phx::testing::countable_run;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MemorySvg, HasABarForEveryKindOfRank) {
  RunConfig config = countable_run();
  config.model.num_layers = 2;
  config.parallel.pipeline_model_parallel_size = 2;
  const std::string svg =
      draw_memory(plan_run(config, 2, {}), {.title = "two stages", .device_bytes = 1 << 30});
  for (const char* part : {"two stages", ">stage 0<", ">stage 1<",
                           "<title>optimizer: ", "a rank has 1.00 GiB", "</svg>"})
    EXPECT_THAT(svg, HasSubstr(part));
}

// One rank of a model of two purposes: 3 KiB and 1 KiB.
RunPlan one_rank() {
  RunPlan plan{.layout = make_layout(countable_run().layout(), 1)};
  plan.stages.resize(1);
  MemoryReport& memory = plan.stages[0].memory;
  memory.at_peak[size_t(Purpose::weights)] = 3 << 10;
  memory.at_peak[size_t(Purpose::gradients)] = 1 << 10;
  memory.reserved = 5000;
  return plan;
}

TEST(MemorySvg, ABarIsAsLongAsItsBytesAndBeginsWhereTheLastEnds) {
  const std::string svg = draw_memory(one_rank(), {.title = "t"});
  // All of 640 pixels are 5000 bytes and a fiftieth: 3072 of 5100 are 385.5, 1024 are 128.5.
  EXPECT_THAT(svg, ::testing::ContainsRegex("<rect x=\"96\" y=\"76\" width=\"385\\.5"));
  EXPECT_THAT(svg, ::testing::ContainsRegex("<rect x=\"481\\.5[0-9]*\" y=\"76\" width=\"128\\.5"));
  EXPECT_THAT(svg, HasSubstr(">4.00 KiB</text>"));
}

TEST(MemorySvg, WhatIsNotUsedIsNotInTheLegendAndADeviceOnlyWhereItIsKnown) {
  const std::string svg = draw_memory(one_rank(), {.title = "t"});
  EXPECT_THAT(svg, HasSubstr(">weights<"));
  EXPECT_THAT(svg, Not(HasSubstr(">optimizer<")));
  EXPECT_THAT(svg, Not(HasSubstr("a rank has")));
}

}  // namespace
}  // namespace phx
