// The proof of a schedule before anything runs it. A schedule that passes
//   - computes every micro-batch on every chunk exactly once: forward, then backward, then, if it
//     has such steps, weight_backward (a schedule for evaluation has forwards only);
//   - receives every input before its use and sends every output right after its making;
//   - names its messages in the same order at both ends of every link;
//   - never gets stuck, neither with buffered sends nor with sends that wait for their receive
//     (step_graph.h).
#pragma once

#include <utility>
#include <vector>

#include "phalanx/parallel/pipeline/schedule.h"

namespace phx {

struct ScheduleReport {
  // Most (micro-batch, chunk) pairs that were alive at once on each rank: from the forward to the
  // last step that needs its activations. A chunk holds 1/V of a rank's layers.
  std::vector<int> peak_alive;
};

// Throws an Error that names the rank and the step.
ScheduleReport check_schedule(const Schedule& schedule);

// A schedule that has passed the check when it was made: the only kind that the engine takes.
class CheckedSchedule {
 public:
  explicit CheckedSchedule(Schedule schedule)
      : schedule_(std::move(schedule)), report_(check_schedule(schedule_)) {}
  const Schedule& operator*() const { return schedule_; }
  const Schedule* operator->() const { return &schedule_; }
  const ScheduleReport& report() const { return report_; }

 private:
  Schedule schedule_;
  ScheduleReport report_;
};

}  // namespace phx
