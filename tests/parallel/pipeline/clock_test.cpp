#include "phalanx/parallel/pipeline/clock.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

constexpr double kExact = 1e-12;  // quotients of small whole numbers: a few roundings in f64

const StepDurations kSomeDurations[] = {{1, 1, 0}, {1, 1, 1}, {2, 3, 1}, {5, 3, 7}};

// Sends that wait for their receives cost nothing: receives are posted in time.
constexpr Sends kBoth[] = {Sends::buffered, Sends::rendezvous};

TEST(Clock, TwoRanksByHand) {
  // rank 0: F0 F1 .  B0 .  B1        rank 1: .  F0 B0 F1 B1 .
  const Schedule schedule = one_f_one_b({.stages = 2, .micro_batches = 2});
  const Timeline timeline = simulate(schedule, {.forward = 1, .backward = 1, .weight_backward = 0});
  EXPECT_EQ(timeline.makespan, 6);
  EXPECT_EQ(timeline.busy[0], 4);
  const std::vector<TimedStep>& rank0 = timeline.ranks[0];
  ASSERT_EQ(rank0.size(), 4u);
  EXPECT_EQ(rank0[2].step, (ScheduleStep{StepKind::backward, 0, 0}));
  EXPECT_EQ(rank0[2].begin, 3);
  EXPECT_EQ(rank0[3].begin, 5);
  EXPECT_EQ(timeline.ranks[1][0].begin, 1);
  EXPECT_EQ(timeline.ranks[1][3].end, 5);
  EXPECT_NEAR(timeline.bubble(1), 1. / 3., kExact);
}

TEST(Clock, OneStageHasNoBubble) {
  const Timeline timeline = simulate(one_stage_schedule(5), {2, 3, 1});
  EXPECT_EQ(timeline.makespan, 30);
  EXPECT_EQ(timeline.bubble(), 0);
}

TEST(Clock, OneFOneBHasItsClosedForm) {
  for (int stages : {2, 3, 4, 8, 16})
    for (int micro_batches : {1, 2, 3, 8, 19})
      for (const StepDurations& durations : kSomeDurations)
        for (const Sends sends : kBoth) {
          const Schedule schedule = one_f_one_b({.stages = stages, .micro_batches = micro_batches});
          const Timeline timeline = simulate(schedule, durations, sends);
          EXPECT_NEAR(timeline.bubble(), one_f_one_b_bubble(stages, micro_batches), kExact)
              << stages << " stages, " << micro_batches << " micro-batches";
        }
}

TEST(Clock, InterleavedHasItsClosedForm) {
  for (int stages : {2, 3, 4})
    for (int chunks : {2, 3, 5})
      for (int group : {stages, stages + 1, 2 * stages, 3 * stages + 1})
        for (int groups : {1, 2, 3})
          for (const StepDurations& durations : kSomeDurations)
            for (const Sends sends : kBoth) {
              const Timeline timeline =
                  simulate(interleaved_one_f_one_b({.stages = stages,
                                                    .chunks = chunks,
                                                    .micro_batches = group * groups,
                                                    .group_size = group}),
                           durations, sends);
              EXPECT_NEAR(timeline.bubble(), interleaved_bubble(stages, chunks, group * groups),
                          kExact)
                  << stages << " stages, " << chunks << " chunks, " << groups << " groups of "
                  << group;
            }
}

TEST(Clock, ZeroBubbleHasItsClosedForm) {
  for (int stages : {2, 3, 4, 8, 16})
    for (int micro_batches : {stages, stages + 1, 2 * stages, 3 * stages + 2})
      for (const Sends sends : kBoth) {
        const Timeline timeline = simulate(
            zero_bubble_h1({.stages = stages, .micro_batches = micro_batches}), {1, 1, 1}, sends);
        EXPECT_EQ(timeline.makespan, 3 * micro_batches + stages - 1);
        EXPECT_NEAR(timeline.bubble(), zero_bubble_h1_bubble(stages, micro_batches), kExact);
      }
}

TEST(Clock, ZeroBubbleIsNeverSlowerThanOneFOneB) {
  for (int stages : {2, 4, 8})
    for (int micro_batches : {1, 2, 5, 8, 21})
      for (const StepDurations& durations : kSomeDurations) {
        const ScheduleConfig config{.stages = stages, .micro_batches = micro_batches};
        EXPECT_LE(simulate(zero_bubble_h1(config), durations).makespan,
                  simulate(one_f_one_b(config), durations).makespan);
      }
}

TEST(Clock, EveryRankWorksAsLongAsItsStepsTake) {
  const Timeline timeline = simulate(zero_bubble_h1({.stages = 3, .micro_batches = 4}), {2, 3, 5});
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(timeline.busy[rank], 4 * (2 + 3 + 5));
}

}  // namespace
}  // namespace phx
