// All ranks of a run. What a rank holds depends on its stage of the pipeline: which layers, and how
// many micro-batches are alive at once. It does not depend on its place among the tensor-parallel
// ranks (matrices and the padded vocabulary are cut evenly) nor among the data-parallel ones
// (buckets are cut evenly, everybody has the same number of micro-batches). It does depend on its
// place among the context-parallel ranks where a layer has a window (context_kinds.h). So one rank
// of each stage and kind is planned; tests/plan compares every rank of many layouts with it.
//
// Two exceptions, in which `peak_reserved` can differ a little. On cpu a collective takes scratch
// memory by its size, and which gradients of a sharded optimizer are also summed over tp depends on
// the data-parallel rank, after the activations are gone. And context-parallel ranks compute parts
// of several sizes in orders of their own, so that the allocator's cache has other blocks in early
// steps.
#pragma once

#include <functional>
#include <vector>

#include "phalanx/plan/rank_plan.h"

namespace phx {

// Called as ranks get done, from any thread, one call at a time.
using PlanProgress = std::function<void(int done, int all)>;

struct RunPlan {
  Layout layout;
  int64_t micro_batches = 0;       // a step, of each data-parallel rank
  std::vector<RankPlan> stages;    // by pipeline rank: of its ranks the one that takes most memory
  std::vector<double> mean_flops;  // of a stage's ranks, by pipeline rank

  int ranks_a_stage() const { return layout.mesh.sizes.world() / layout.mesh.sizes.pp; }
  // The stage that takes most memory from its device.
  int largest_stage() const;
  const RankPlan& largest() const { return stages[size_t(largest_stage())]; }
  double flops() const;  // of all ranks, in one step
};

RunPlan plan_run(const RunConfig& config, int world, const PlanOptions& options,
                 const PlanProgress& progress = {});

struct Fit {
  bool fits = true;
  int stage = 0;                   // the one that does not; else the largest
  bool early_steps_tight = false;  // the first steps must give cached memory back in between
  std::string stays_with_cache;    // a step for whose arena there is no room: why; else empty
};
// Whether every rank can train with `device_bytes`. Where it is close, the allocator itself is
// asked: the step is run on a device of that size.
Fit fit(const RunConfig& config, const RunPlan& plan, DeviceKind target, int64_t device_bytes);

// What libraries take beside the allocator: an estimate.
struct LibraryMemory {
  int64_t context = 0;  // CUDA's context, kernels, cuBLASLt and cuDNN
  int64_t groups = 0;   // NCCL's buffers
  int64_t total() const { return context + groups; }
};
LibraryMemory library_memory(const RankPlan& plan, DeviceKind target);

}  // namespace phx
