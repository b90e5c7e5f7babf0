// A pipeline schedule as data: for every rank the list of what it does, in order. Made by pure
// functions here, proved by check.h, timed on a logical clock by clock.h, drawn by draw.h and
// executed by engine.h. docs/pipeline.md shows the schedules and what each is good for.
//
// A rank's forward of (micro-batch m, chunk c) takes its input from the rank before; on rank 0, for
// c > 0, from the last rank, whose chunk c - 1 comes before it in the model. The backward goes the
// other way around. A message is named by the micro-batch and the *local* chunk: what the last rank
// sends as (m, c - 1) rank 0 receives as (m, c).
//
//   receive_*  posts a receive, so that the message can arrive while the rank computes. It stands
//              `receive_ahead` compute steps before its use; the compute step waits for it.
//   send_*     stands right after the compute step that made the data.
//
// A schedule whose backward leaves the weights' gradients for later has a weight_backward step for
// every backward; in others the backward does both.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "phalanx/base/problem.h"

namespace phx {

enum class StepKind : uint8_t {
  forward,
  backward,
  weight_backward,
  send_forward,
  receive_forward,
  send_backward,
  receive_backward
};
inline constexpr int kNumStepKinds = 7;
const char* name(StepKind kind);
bool is_compute(StepKind kind);

struct ScheduleStep {
  StepKind kind = StepKind::forward;
  int micro_batch = 0;
  int chunk = 0;
  bool operator==(const ScheduleStep&) const = default;
};
std::ostream& operator<<(std::ostream& out, const ScheduleStep& step);

struct Schedule {
  std::string name;  // "1F1B", for people
  int stages = 1, chunks = 1, micro_batches = 1;
  std::vector<std::vector<ScheduleStep>> ranks;
};

// Whether backwards leave the weights' gradients to weight_backward steps.
bool defers_weights(const Schedule& schedule);

// Whether (rank, chunk) is where the model begins (ends): nothing is received (sent) forward there.
bool is_model_begin(int rank, int chunk);
bool is_model_end(const Schedule& schedule, int rank, int chunk);

struct ScheduleConfig {
  int stages = 1;         // P
  int chunks = 1;         // V
  int micro_batches = 1;  // M, of one data-parallel rank in one step
  int group_size = 0;     // --microbatch-group-size-per-virtual-pipeline-stage; 0: P
  int receive_ahead = 1;  // compute steps between a receive and its use; 0: right before it
};

// A schedule from the compute steps of every rank (forward, backward, weight_backward), in order:
// sends and receives are put in where they belong. What own schedules are made with.
Schedule schedule_of(const ScheduleConfig& config, std::string name,
                     const std::function<std::vector<ScheduleStep>(int rank)>& order_of);

// All micro-batches forward and backward, one after the other: P = 1.
Schedule one_stage_schedule(int micro_batches);

// P - p - 1 forwards to fill the pipeline, then a forward and a backward in turn: at most P - p
// micro-batches are alive on rank p. V = 1.
Schedule one_f_one_b(const ScheduleConfig& config);

// The same with V chunks a rank, in Megatron's order: groups of g micro-batches pass chunk 0, then
// chunk 1, .. The bubble is V times smaller, the messages V times more.
Schedule interleaved_one_f_one_b(const ScheduleConfig& config);
// Why `config` cannot be interleaved; empty if it can.
Problems interleaving_problems(const ScheduleConfig& config);

// Zero-bubble H1 (Qi et al., "Zero Bubble Pipeline Parallelism"): 1F1B whose backward is split;
// rank p puts off the gradients of weights by p micro-batches, to have work while the pipeline
// drains. At most P micro-batches are alive on any rank: 1F1B's peak, but on every rank. V = 1.
Schedule zero_bubble_h1(const ScheduleConfig& config);

// Only forwards, for evaluation; nothing stays alive. Any P and V; micro-batches pass in the same
// groups as in training.
Schedule forward_only(const ScheduleConfig& config);

}  // namespace phx
