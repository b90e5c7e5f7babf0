// Optimizer state of some ranges of the parameters, in one memory: the device's or the host's.
#pragma once

#include <span>
#include <vector>

#include "nn/parameter_store.h"
#include "optim/optimizer_config.h"

namespace phx {

// A range of the store whose parameters are treated alike, and where its states stand in the share.
struct SharePiece {
  FlatRange of_store, of_states;
  bool decays = false, decoupled = false;
};

struct StateShare {
  // Uninitialised states for the ranges, which are in order.
  StateShare(std::vector<FlatRange> ranges, const ParameterStore& store,
             const OptimizerConfig& config, Device device);

  std::vector<SharePiece> pieces(std::span<const FlatRun> runs) const;

  std::vector<FlatRange> ranges;
  int64_t size = 0;
  Tensor exp_avg, exp_avg_sq;  // of the ranges, end to end
  Tensor master;               // f32 for f16, the u16 remainder for bf16, undefined for f32 and f64
};

// The first `fraction` of the elements, cut at a multiple of the store's alignment, and the rest.
struct SplitRanges {
  std::vector<FlatRange> first, rest;
};
SplitRanges split(std::span<const FlatRange> ranges, double fraction);

}  // namespace phx
