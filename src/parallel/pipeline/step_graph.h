// What every step of a schedule waits for, as one graph over all ranks. check.h looks for circles
// in it, clock.h for its longest path.
//
// The machine that runs a schedule has five streams a rank: compute, and one for each direction and
// end of messages (forward in, forward out, backward in, backward out). Each runs its work in
// order.
//
//   a compute step waits for the compute step before it and for the receive of its input;
//   a send waits for the compute step before it, and for the send before it on its stream;
//   a receive waits for the compute step before its place in the list (its buffer may have been in
//   use until then), for the receive before it on its stream, and for its message to be sent.
//
// Sends are `buffered` where they never wait for the other side. Where they do (NCCL:
// `rendezvous`), a send also waits until its receive could run, and a compute step waits for all
// sends of the compute steps before its predecessor: that is when engine.h lets the memory go.
#pragma once

#include <string>
#include <vector>

#include "phalanx/parallel/pipeline/schedule.h"

namespace phx {

enum class Sends : uint8_t { buffered, rendezvous };

// How many compute steps run between a send and the first one that waits for it: none of the work
// in between can reuse the memory that is being sent.
inline constexpr int kSendHold = 1;

struct StepId {
  int rank = 0;
  int step = 0;  // in Schedule::ranks[rank]
};

struct StepGraph {
  std::vector<StepId> ids;               // of each node: all steps of rank 0, then of rank 1, ..
  std::vector<std::vector<int>> before;  // nodes that each node waits for

  // The nodes in an order in which each comes after those it waits for. Shorter than ids if some
  // wait for each other: those are missing.
  std::vector<int> order() const;
};

// The schedule has matching sends and receives (check.h).
StepGraph make_step_graph(const Schedule& schedule, Sends sends);

// Who is at the other end of a send or receive, and what the message is called there.
struct PeerStep {
  int rank = 0;
  ScheduleStep step;
};
PeerStep peer_of(const Schedule& schedule, int rank, const ScheduleStep& step);

}  // namespace phx
