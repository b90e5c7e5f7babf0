// The update rule on the CPU for parameters whose state lies in host memory
// (--optimizer-cpu-offload).
//
// Gradients and weights come over in chunks through a few pinned buffers, are updated by the CPU's
// kernel, and the weights go back: while one chunk is computed, others travel both ways. Moments
// and masters never leave the host. The host waits here for the step's gradients; the device goes
// on with its own share of the update in the meantime.
//
// The arithmetic is that of the CPU kernel: on a cpu device bit for bit what it is without offload.
#pragma once

#include <vector>

#include "phalanx/core/host_side.h"
#include "phalanx/core/step_scalars.h"
#include "phalanx/optim/state_share.h"

namespace phx {

class HostUpdate {
 public:
  // `ranges`: in order. Without overlap_cpu_optimizer_d2h_h2d copies and arithmetic take turns.
  HostUpdate(ParameterStore& store, const OptimizerConfig& config, const UpdateRule& rule,
             std::vector<FlatRange> ranges, uint64_t seed);

  StateShare& share() { return share_; }
  const StateShare& share() const { return share_; }
  void masters_from_weights();

  // begin() enqueues the first copies behind the device's compute stream, which has made the clip
  // factor; finish() computes, and leaves the compute stream waiting for the last weights.
  void begin(const StepScalars& scalars);
  void finish();

 private:
  struct Buffer {
    Tensor gradient, weight;  // [chunk]
    Fence arrived, left;      // from the device; back to it
  };
  struct Chunk {
    SharePiece piece;
    Buffer* buffer = nullptr;
  };
  void fetch(Chunk& chunk);
  void update(const Chunk& chunk);

  ParameterStore& store_;
  OptimizerConfig config_;
  UpdateRule rule_;
  uint64_t seed_;
  HostSide& host_;
  StateShare share_;
  std::vector<Chunk> chunks_;
  std::vector<Buffer> buffers_;
  Tensor scalars_;  // f64 [kNumSlots]
  Fence scalars_arrived_;
};

}  // namespace phx
