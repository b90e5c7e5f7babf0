#include "phalanx/parallel/pipeline/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "support/gradients.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using testing::error_of;

std::string letter(StepKind kind) {
  static constexpr const char* kLetters[] = {"F", "B", "W", "sf", "rf", "sb", "rb"};
  return kLetters[static_cast<int>(kind)];
}

// "F00 F10 B01": kind, micro-batch, chunk.
std::string text_of(const Schedule& schedule, int rank, bool messages = false) {
  std::string text;
  for (const ScheduleStep& step : schedule.ranks[rank]) {
    if (!messages && !is_compute(step.kind)) continue;
    std::ostringstream word;
    word << letter(step.kind) << step.micro_batch << step.chunk;
    text += (text.empty() ? "" : " ") + word.str();
  }
  return text;
}

TEST(Schedule, OneStageRunsMicroBatchesOneAfterTheOther) {
  const Schedule schedule = one_stage_schedule(2);
  EXPECT_EQ(text_of(schedule, 0, /*messages=*/true), "F00 B00 F10 B10");
  EXPECT_FALSE(defers_weights(schedule));
}

TEST(Schedule, OneFOneBFillsThePipelineThenAlternates) {
  const Schedule schedule = one_f_one_b({.stages = 3, .micro_batches = 4});
  EXPECT_EQ(text_of(schedule, 0), "F00 F10 F20 B00 F30 B10 B20 B30");
  EXPECT_EQ(text_of(schedule, 1), "F00 F10 B00 F20 B10 F30 B20 B30");
  EXPECT_EQ(text_of(schedule, 2), "F00 B00 F10 B10 F20 B20 F30 B30");
}

TEST(Schedule, FewMicroBatchesDoNotFillThePipeline) {
  const Schedule schedule = one_f_one_b({.stages = 4, .micro_batches = 2});
  EXPECT_EQ(text_of(schedule, 0), "F00 F10 B00 B10");
  EXPECT_EQ(text_of(schedule, 3), "F00 B00 F10 B10");
}

// The example of Megatron's order: P = 2, V = 2, M = 4, g = 2.
TEST(Schedule, InterleavedOrderIsMegatrons) {
  const Schedule schedule =
      interleaved_one_f_one_b({.stages = 2, .chunks = 2, .micro_batches = 4, .group_size = 2});
  EXPECT_EQ(text_of(schedule, 0),
            "F00 F10 F01 F11 F20 B01 F30 B11 F21 B00 F31 B10 B21 B31 B20 B30");
  EXPECT_EQ(text_of(schedule, 1),
            "F00 F10 F01 B01 F11 B11 F20 B00 F30 B10 F21 B21 F31 B31 B20 B30");
}

TEST(Schedule, TheLastGroupMayBeSmaller) {
  // Groups of 3 and 2 micro-batches.
  const Schedule schedule =
      interleaved_one_f_one_b({.stages = 2, .chunks = 2, .micro_batches = 5, .group_size = 3});
  std::string forwards;
  for (const ScheduleStep& step : schedule.ranks[1])
    if (step.kind == StepKind::forward)
      forwards += std::to_string(step.micro_batch) + std::to_string(step.chunk) + " ";
  EXPECT_EQ(forwards, "00 10 20 01 11 21 30 40 31 41 ");
}

TEST(Schedule, ZeroBubblePutsOffWeightGradientsByTheRank) {
  const Schedule schedule = zero_bubble_h1({.stages = 3, .micro_batches = 4});
  EXPECT_TRUE(defers_weights(schedule));
  EXPECT_EQ(text_of(schedule, 0), "F00 F10 F20 B00 W00 F30 B10 W10 B20 W20 B30 W30");
  EXPECT_EQ(text_of(schedule, 1), "F00 F10 B00 F20 B10 W00 F30 B20 W10 B30 W20 W30");
  EXPECT_EQ(text_of(schedule, 2), "F00 B00 F10 B10 F20 B20 W00 F30 B30 W10 W20 W30");
}

TEST(Schedule, EvaluationRunsForwardsInTheSameGroups) {
  const Schedule schedule = forward_only({.stages = 2, .chunks = 2, .micro_batches = 3});
  EXPECT_EQ(text_of(schedule, 0), "F00 F10 F01 F11 F20 F21");
  EXPECT_EQ(text_of(schedule, 1, /*messages=*/true),
            "rf00 rf10 F00 sf00 rf01 F10 sf10 rf11 F01 rf20 F11 rf21 F20 sf20 F21");
}

TEST(Schedule, ReceivesStandAheadOfTheirUse) {
  const auto rank0 = [](int ahead) {
    return text_of(one_f_one_b({.stages = 2, .micro_batches = 3, .receive_ahead = ahead}), 0,
                   /*messages=*/true);
  };
  EXPECT_EQ(rank0(0), "F00 sf00 F10 sf10 rb00 B00 F20 sf20 rb10 B10 rb20 B20");
  EXPECT_EQ(rank0(1), "F00 sf00 rb00 F10 sf10 B00 rb10 F20 sf20 rb20 B10 B20");
  EXPECT_EQ(rank0(9), "rb00 rb10 rb20 F00 sf00 F10 sf10 B00 F20 sf20 B10 B20");
}

// With groups of 4 on 2 ranks, rank 0 gets micro-batch 0 back for chunk 1 after two forwards, but
// only wants it after four: it is received when it comes.
TEST(Schedule, WhatComesAroundTheRingEarlyIsReceivedEarly) {
  const Schedule schedule = interleaved_one_f_one_b(
      {.stages = 2, .chunks = 2, .micro_batches = 4, .group_size = 4, .receive_ahead = 0});
  EXPECT_EQ(text_of(schedule, 0, /*messages=*/true).substr(0, 60),
            "F00 sf00 F10 sf10 rf01 F20 sf20 rf11 F30 sf30 rf21 F01 sf01 ");
}

TEST(Schedule, RefusesTooFewMicroBatchesToInterleave) {
  EXPECT_EQ(
      error_of([] { interleaved_one_f_one_b({.stages = 4, .chunks = 2, .micro_batches = 3}); }),
      "3 micro-batches a step are too few to interleave over --pipeline-model-parallel-size "
      "4: at least 4 are needed\n"
      "  hint: larger global batches, of 4 micro-batches a rank, or no virtual stages");
}

TEST(Schedule, RefusesALastGroupSmallerThanThePipeline) {
  EXPECT_EQ(
      error_of([] { interleaved_one_f_one_b({.stages = 4, .chunks = 2, .micro_batches = 10}); }),
      "10 micro-batches a step in groups of 4 "
      "(--microbatch-group-size-per-virtual-pipeline-stage) leave a last group of 2, fewer "
      "than --pipeline-model-parallel-size 4\n"
      "  hint: groups of 5 would do, or 8 and 12 micro-batches a global batch");
}

TEST(Schedule, RefusesGroupsSmallerThanThePipelineOrLargerThanTheStep) {
  const auto refusal = [](int group) {
    return error_of([=] {
      interleaved_one_f_one_b({.stages = 4, .chunks = 2, .micro_batches = 8, .group_size = group});
    });
  };
  EXPECT_EQ(refusal(3),
            "--microbatch-group-size-per-virtual-pipeline-stage 3 should be from "
            "--pipeline-model-parallel-size 4 to the 8 micro-batches of a step\n"
            "  hint: groups of 4 would do");
  EXPECT_EQ(refusal(9),
            "--microbatch-group-size-per-virtual-pipeline-stage 9 should be from "
            "--pipeline-model-parallel-size 4 to the 8 micro-batches of a step\n"
            "  hint: groups of 8 would do, or 9 micro-batches a global batch");
}

TEST(Schedule, RefusesChunksWhereThereIsOne) {
  EXPECT_EQ(error_of([] { one_f_one_b({.stages = 2, .chunks = 2, .micro_batches = 2}); }),
            "1F1B schedule: a rank has one chunk here, but 2 were given: interleave them");
  EXPECT_EQ(error_of([] { one_f_one_b({.stages = 2, .micro_batches = 0}); }),
            "1F1B schedule: the number of micro-batches should be at least 1, but it is 0");
  EXPECT_EQ(error_of([] { forward_only({.stages = 1, .chunks = 2}); }),
            "forward-only schedule: one stage has one chunk, but 2 were given");
}

}  // namespace
}  // namespace phx
