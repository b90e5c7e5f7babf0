// Executes a schedule: walks a rank's list, passes messages over its links and drives its Stage.
//
// Where communicators are asynchronous (NCCL) each link has a stream of its own, so that messages
// move while the rank computes:
//   receive   allocates the buffer, lets the stream wait for the compute stream (which may have
//             used that memory until now) and enqueues; the compute step that uses it waits for it.
//   send      lets the stream wait for the compute stream and enqueues. The tensor is held until
//             the second compute step from there (kSendHold), which waits for the send: only then
//             may other work get its memory.
// Where they are not (threads, sockets, mpi, meta) a receive happens at its use, but its buffer is
// allocated, and a sent tensor let go, at the very same places of the program: memory is planned on
// meta ranks and replayed by ordinal, so it must not depend on who communicates or how fast.
#pragma once

#include "phalanx/parallel/pipeline/check.h"
#include "phalanx/parallel/pipeline/clock.h"
#include "phalanx/parallel/pipeline/links.h"
#include "phalanx/parallel/pipeline/schedule.h"
#include "phalanx/parallel/pipeline/stage.h"

namespace phx {

// A logical clock that runs along with the execution: every compute step takes its duration, every
// message carries the time at which it was made (a second message of one f64, on the same link).
// When all is done, `now` is when this rank finished and `busy` how long it computed: what
// simulate() foretells. Not for meta, whose messages carry nothing.
struct LogicalClock {
  StepDurations durations;
  double now = 0;
  double busy = 0;
};

// All steps of `rank`. On return nothing is under way, but on a device the compute stream may still
// be running.
void run_schedule(const CheckedSchedule& schedule, int rank, Stage& stage,
                  const PipelineLinks& links, LogicalClock* clock = nullptr);

}  // namespace phx
