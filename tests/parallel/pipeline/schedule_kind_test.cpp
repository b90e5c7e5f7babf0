#include "phalanx/parallel/pipeline/schedule_kind.h"

#include <gtest/gtest.h>

#include "phalanx/base/named_entry.h"
#include "phalanx/parallel/pipeline/check.h"

namespace phx {
namespace {

TEST(ScheduleKind, NamesMeanTheSchedulesOfTheLibrary) {
  const std::vector<ScheduleKind> kinds = standard_schedule_kinds();
  const auto made = [&](const char* name, const ScheduleConfig& config) {
    const ScheduleKind& kind = entry_of(kinds, name, "--pipeline-schedule");
    return kind.make(config, kind.options).name;
  };
  EXPECT_EQ(made("1f1b", {.stages = 2, .micro_batches = 4}), "1F1B");
  EXPECT_EQ(made("1f1b", {.stages = 2, .chunks = 2, .micro_batches = 4}), "interleaved 1F1B");
  EXPECT_EQ(made("zb-h1", {.stages = 2, .micro_batches = 4}), "ZB-H1");
}

TEST(ScheduleKind, InterleavingSaysWhatItNeeds) {
  const ScheduleKind kind = standard_schedule_kinds()[0];
  EXPECT_TRUE(kind.problems({.stages = 4, .chunks = 1, .micro_batches = 1}).empty());
  EXPECT_FALSE(kind.problems({.stages = 4, .chunks = 2, .micro_batches = 1}).empty());
}

// All forwards, then all backwards (GPipe), from the compute steps alone.
TEST(ScheduleKind, AnOrderOfComputeStepsBecomesAWholeSchedule) {
  const ScheduleConfig config{.stages = 3, .micro_batches = 4};
  const Schedule schedule = schedule_of(config, "GPipe", [&](int) {
    std::vector<ScheduleStep> steps;
    for (int m = 0; m < config.micro_batches; ++m) steps.push_back({StepKind::forward, m, 0});
    for (int m = 0; m < config.micro_batches; ++m) steps.push_back({StepKind::backward, m, 0});
    return steps;
  });
  EXPECT_NO_THROW(CheckedSchedule{schedule});
  int messages = 0;
  for (const ScheduleStep& step : schedule.ranks[1]) messages += !is_compute(step.kind);
  EXPECT_EQ(messages, 4 * 4) << "a stage inside sends and receives both ways";
}

}  // namespace
}  // namespace phx
