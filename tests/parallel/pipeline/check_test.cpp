#include "phalanx/parallel/pipeline/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/gradients.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::StartsWith;
using enum StepKind;

// Calls f with many schedules of every sort.
void for_many_schedules(const std::function<void(const Schedule&)>& f) {
  for (int stages : {1, 2, 3, 4, 7})
    for (int micro_batches : {1, 2, 3, 4, 8, 13})
      for (int ahead : {0, 1, 2, 9}) {
        const ScheduleConfig config{
            .stages = stages, .micro_batches = micro_batches, .receive_ahead = ahead};
        f(one_f_one_b(config));
        f(zero_bubble_h1(config));
        f(forward_only(config));
      }
}

void for_many_interleaved(const std::function<void(const Schedule&)>& f) {
  for (int stages : {2, 3, 4})
    for (int chunks : {2, 3})
      for (int group = stages; group <= 3 * stages + 1; ++group)
        for (int micro_batches = group; micro_batches <= 3 * group + 1; ++micro_batches)
          for (int ahead : {0, 1, 4}) {
            const ScheduleConfig config{.stages = stages,
                                        .chunks = chunks,
                                        .micro_batches = micro_batches,
                                        .group_size = group,
                                        .receive_ahead = ahead};
            if (interleaving_problems(config).empty()) f(interleaved_one_f_one_b(config));
            f(forward_only(config));
          }
}

TEST(CheckSchedule, PassesWhatWeMake) {
  check_schedule(one_stage_schedule(3));
  for_many_schedules([](const Schedule& schedule) { check_schedule(schedule); });
  for_many_interleaved([](const Schedule& schedule) { check_schedule(schedule); });
}

TEST(CheckSchedule, CountsWhatIsAlive) {
  const auto peak = [](const Schedule& schedule) { return check_schedule(schedule).peak_alive; };
  const ScheduleConfig config{.stages = 4, .micro_batches = 8};
  EXPECT_THAT(peak(one_stage_schedule(8)), ElementsAre(1));
  EXPECT_THAT(peak(one_f_one_b(config)), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(peak(zero_bubble_h1(config)), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(peak(forward_only(config)), ElementsAre(0, 0, 0, 0));
  // Warm-up of 2 (P - p - 1) + (V - 1) P, and one: of chunks, which are half a stage each.
  EXPECT_THAT(peak(interleaved_one_f_one_b({.stages = 4, .chunks = 2, .micro_batches = 8})),
              ElementsAre(11, 9, 7, 5));
}

TEST(CheckSchedule, ZeroBubbleNeverHoldsMoreThanOneFOneB) {
  for (int stages : {2, 3, 4, 8})
    for (int micro_batches : {1, 2, 5, 8, 20}) {
      const ScheduleConfig config{.stages = stages, .micro_batches = micro_batches};
      const auto zero_bubble = check_schedule(zero_bubble_h1(config)).peak_alive;
      const auto plain = check_schedule(one_f_one_b(config)).peak_alive;
      EXPECT_LE(*std::max_element(zero_bubble.begin(), zero_bubble.end()),
                *std::max_element(plain.begin(), plain.end()));
    }
}

Schedule two_ranks() { return one_f_one_b({.stages = 2, .micro_batches = 2, .receive_ahead = 0}); }
// rank 0: F0 sf0 F1 sf1 rb0 B0 rb1 B1
// rank 1: rf0 F0 B0 sb0 rf1 F1 B1 sb1

std::string refusal(const Schedule& schedule) {
  return error_of([&] { check_schedule(schedule); });
}

TEST(CheckSchedule, RefusesAMissingStep) {
  Schedule schedule = two_ranks();
  schedule.ranks[0].pop_back();
  EXPECT_EQ(refusal(schedule),
            "1F1B schedule, rank 0 lacks a step: backward of micro-batch 1, chunk 0");
  schedule = zero_bubble_h1({.stages = 2, .micro_batches = 2});
  schedule.ranks[1].pop_back();
  EXPECT_EQ(refusal(schedule),
            "ZB-H1 schedule, rank 1 lacks a step: weight_backward of micro-batch 1, chunk 0");
}

TEST(CheckSchedule, RefusesAStepThatIsThereTwice) {
  Schedule schedule = two_ranks();
  schedule.ranks[1].push_back({forward, 1, 0});
  EXPECT_EQ(
      refusal(schedule),
      "1F1B schedule, rank 1, step 8 (forward of micro-batch 1, chunk 0): it stands at step 5 "
      "already");
}

TEST(CheckSchedule, RefusesAStepOfNoMicroBatch) {
  Schedule schedule = two_ranks();
  schedule.ranks[1].push_back({forward, 2, 0});
  EXPECT_EQ(refusal(schedule),
            "1F1B schedule, rank 1, step 8 (forward of micro-batch 2, chunk 0): there are 2 "
            "micro-batches and 1 chunks");
}

TEST(CheckSchedule, RefusesTheWrongOrderWithinARank) {
  Schedule schedule = two_ranks();
  std::swap(schedule.ranks[1][1], schedule.ranks[1][2]);
  EXPECT_EQ(refusal(schedule),
            "1F1B schedule, rank 1, step 1 (backward of micro-batch 0, chunk 0): it comes before "
            "rank 1, step 2 (forward of micro-batch 0, chunk 0)");
  schedule = two_ranks();
  std::swap(schedule.ranks[0][4], schedule.ranks[0][5]);
  EXPECT_EQ(refusal(schedule),
            "1F1B schedule, rank 0, step 4 (backward of micro-batch 0, chunk 0): it comes before "
            "rank 0, step 5 (receive_backward of micro-batch 0, chunk 0)");
}

TEST(CheckSchedule, RefusesASendThatIsPutOff) {
  Schedule schedule = two_ranks();
  std::swap(schedule.ranks[0][1], schedule.ranks[0][2]);
  EXPECT_EQ(refusal(schedule),
            "1F1B schedule, rank 0, step 2 (send_forward of micro-batch 0, chunk 0): it does not "
            "stand right after rank 0, step 0 (forward of micro-batch 0, chunk 0)");
}

TEST(CheckSchedule, RefusesAMessageToNobody) {
  Schedule schedule = two_ranks();
  schedule.ranks[1].push_back({send_forward, 1, 0});
  EXPECT_EQ(refusal(schedule),
            "1F1B schedule, rank 1, step 8 (send_forward of micro-batch 1, chunk 0): nobody is "
            "there to exchange it with");
}

TEST(CheckSchedule, RefusesMessagesThatCrossOnALink) {
  Schedule schedule = two_ranks();
  schedule.ranks[1] = {{receive_forward, 1, 0}, {receive_forward, 0, 0}, {forward, 0, 0},
                       {backward, 0, 0},        {send_backward, 0, 0},   {forward, 1, 0},
                       {backward, 1, 0},        {send_backward, 1, 0}};
  EXPECT_EQ(
      refusal(schedule),
      "1F1B schedule, rank 1, step 0 (receive_forward of micro-batch 1, chunk 0) is message 0 "
      "of its link, where rank 0 sends rank 0, step 1 (send_forward of micro-batch 0, chunk "
      "0)");
}

TEST(CheckSchedule, RefusesRanksThatWaitForEachOther) {
  // Rank 0 wants the backward of 0 before it makes the forward that rank 1 wants first.
  Schedule schedule = two_ranks();
  schedule.ranks[0] = {{forward, 0, 0},          {send_forward, 0, 0}, {receive_backward, 0, 0},
                       {backward, 0, 0},         {forward, 1, 0},      {send_forward, 1, 0},
                       {receive_backward, 1, 0}, {backward, 1, 0}};
  schedule.ranks[1] = {{receive_forward, 0, 0}, {receive_forward, 1, 0}, {forward, 0, 0},
                       {forward, 1, 0},         {backward, 0, 0},        {send_backward, 0, 0},
                       {backward, 1, 0},        {send_backward, 1, 0}};
  const std::string text = refusal(schedule);
  EXPECT_THAT(text, StartsWith("1F1B schedule: it gets stuck when sends are buffered: "));
  EXPECT_THAT(text,
              ::testing::HasSubstr("rank 0, step 4 (forward of micro-batch 1, chunk 0) waits "
                                   "for rank 0, step 3 (backward of micro-batch 0, chunk 0)"));
}

TEST(CheckSchedule, RefusesAReceiveThatComesTooLateForItsSender) {
  Schedule schedule = interleaved_one_f_one_b(
      {.stages = 2, .chunks = 2, .micro_batches = 6, .group_size = 6, .receive_ahead = 0});
  check_schedule(schedule);
  // The same with what comes around the ring received right before its use: rank 1 waits to have
  // message 0 taken before its third forward, so it takes no more than three messages itself, and
  // rank 0 never comes to its seventh forward, the first of chunk 1.
  auto& steps = schedule.ranks[0];
  std::vector<ScheduleStep> late;
  for (const ScheduleStep& step : steps) {
    if (step.kind == receive_forward) continue;
    if (step.kind == forward && step.chunk == 1)
      late.push_back({receive_forward, step.micro_batch, step.chunk});
    late.push_back(step);
  }
  steps = late;
  EXPECT_THAT(refusal(schedule), StartsWith("interleaved 1F1B schedule: it gets stuck when sends "
                                            "wait for their receives: rank 0, step "));
}

TEST(CheckSchedule, RefusesListsOfAnotherNumberOfRanks) {
  Schedule schedule = two_ranks();
  schedule.ranks.pop_back();
  EXPECT_EQ(refusal(schedule),
            "1F1B schedule: 2 stages, 1 chunks, 2 micro-batches and the lists of 1 ranks do not go "
            "together");
}

}  // namespace
}  // namespace phx
