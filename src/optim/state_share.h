// Optimizer state of some ranges of the parameters, in one memory: the device's or the host's.
#pragma once

#include <span>
#include <vector>

#include "phalanx/nn/parameter_store.h"
#include "phalanx/optim/optimizer_config.h"
#include "phalanx/optim/update_rule.h"

namespace phx {

// A range of the store whose parameters are treated alike, and where its states stand in the share.
struct SharePiece {
  FlatRange of_store, of_states;
  bool decays = false, decoupled = false;
  // Moments of 16 bits are rounded by random bits: those of element `first` on of the stream
  // `site`. A stream belongs to a parameter and counts its global elements, so that every layout
  // draws the same; but a matrix that tensor parallelism cuts by columns has a stream for each
  // rank's columns.
  uint64_t site = 0;
  int64_t first = 0;
};

struct StateShare {
  // Uninitialised states for the ranges, which are in order.
  StateShare(std::vector<FlatRange> ranges, const ParameterStore& store,
             const OptimizerConfig& config, const UpdateRule& rule, Device device);

  std::vector<FlatRange> ranges;
  std::vector<SharePiece> pieces;  // of the ranges, in order
  int64_t size = 0;
  std::vector<Tensor> states;  // the rule's, in its order: of the ranges, end to end
  Tensor master;               // f32 for f16, the u16 remainder for bf16, undefined for f32 and f64

  // The update of a piece whose gradient and weight are given, wherever they lie.
  UpdateCall call_for(const SharePiece& piece, Tensor grad, Tensor weight, Tensor scalars,
                      const OptimizerConfig& config, uint64_t seed) const;
};

// The first `fraction` of the elements, cut at a multiple of the store's alignment, and the rest.
struct SplitRanges {
  std::vector<FlatRange> first, rest;
};
SplitRanges split(std::span<const FlatRange> ranges, double fraction);
// Likewise, but the buckets of tied parameters are cut by themselves: the first and the last stage
// of a pipeline hold the same bucket beside different others, and have to cut it at the same
// element, since host and device round an update differently. `ranges`: of the store, in order.
SplitRanges split(const ParameterStore& store, std::span<const FlatRange> ranges, double fraction);

}  // namespace phx
