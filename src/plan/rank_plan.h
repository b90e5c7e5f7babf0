// What one rank of a run holds, computes and sends: its training step, run on a meta device that
// impersonates the real one. No formulas: the same allocator, model, schedule and collectives as in
// the run itself, with nothing allocated or computed.
#pragma once

#include <cstdint>

#include "phalanx/comm/meta_world.h"
#include "phalanx/core/runtime.h"
#include "phalanx/kernels/gemm_problem.h"
#include "phalanx/plan/start_memory.h"
#include "phalanx/train/session.h"

namespace phx {

struct PlanOptions {
  DeviceKind target = DeviceKind::cuda;  // whose memory is planned: cuda or cpu
  int64_t device_bytes = 0;              // that the rank may use; 0: no end of them
};

struct RankPlan {
  int rank = 0;  // of the world
  StartMemory start;
  // When steps replay their arena. `peak_reserved` includes the first steps, which run from the
  // allocator's cache.
  MemoryReport memory;
  HostMemory host;  // of offloaded optimizer state and activations
  // Of one steady step.
  Cost cost;
  TrafficByGroup traffic;
  std::vector<std::string> attention;       // what would compute it, a line each
  std::set<kernels::GemmProblem> products;  // of matrices, for `phalanx tune`
  int groups = 0;                           // of ranks that this rank is in
  std::string divergence;  // what the allocator says of a step that is not planned; else empty
};

// Runs steps until one is replayed from the arena. Throws where device_bytes do not suffice: the
// allocator's own words.
RankPlan plan_rank(const RunConfig& config, int world, int rank, const PlanOptions& options);

}  // namespace phx
