// A schedule on a logical clock: when each step would run if steps took the given times and
// messages none. What the engine executes can be compared with it, step for step.
#pragma once

#include <vector>

#include "phalanx/parallel/pipeline/schedule.h"
#include "phalanx/parallel/pipeline/step_graph.h"

namespace phx {

// Of one chunk of one micro-batch. A backward that defers nothing takes backward + weight_backward.
struct StepDurations {
  double forward = 1, backward = 1, weight_backward = 1;
};
double duration_of(StepKind kind, const StepDurations& durations, bool defers_weights);

struct TimedStep {
  ScheduleStep step;  // a compute step
  double begin = 0, end = 0;
};

struct Timeline {
  std::vector<std::vector<TimedStep>> ranks;
  double makespan = 0;
  std::vector<double> busy;  // time spent computing, per rank

  // Share of the makespan in which the rank (all ranks together) had nothing to do.
  double bubble(int rank) const { return 1. - busy[rank] / makespan; }
  double bubble() const;
};

Timeline simulate(const Schedule& schedule, const StepDurations& durations,
                  Sends sends = Sends::buffered);

// Closed forms of the bubble's share. Each rank works M V (f + b) and idles (P - 1) (f + b), where
// f and b are a chunk's forward and whole backward; 1F1B has V = 1. For interleaved schedules M is
// a multiple of the group size.
double one_f_one_b_bubble(int stages, int micro_batches);
double interleaved_bubble(int stages, int chunks, int micro_batches);
// ZB-H1 with f = b = w = 1 and M >= P: every rank works 3 M. The first forward reaches rank p at p,
// so it idles p units before it begins. It does P - p forwards, until P; the first backward starts
// on the last rank at P and reaches rank p at P + (P - 1 - p), so it idles P - 1 - p units more.
// From there on it never waits: a deferred weight_backward fills every gap. Together P - 1, a third
// of 1F1B's.
double zero_bubble_h1_bubble(int stages, int micro_batches);

}  // namespace phx
