// A run made small enough to be proved in seconds. What decides how it is cut stays: which axes the
// mesh has, whether key groups are shared between ranks, how many chunks and kinds of stages a
// pipeline has, patterns over layers, everything that is a switch. Sizes go.
#pragma once

#include <string>
#include <vector>

#include "phalanx/train/session.h"

namespace phx {

struct SmallRun {
  RunConfig config;  // in fp64, on mock data
  int world = 1;
  std::vector<std::string> changes;  // "TP 8 -> 4"
};

// `config` can be trained on `world` ranks. Every axis of several ranks keeps at least two.
SmallRun shrink(const RunConfig& config, int64_t world, int64_t most_ranks = 16);

// The same in the run's own precision, with a loss scale that does not skip all of a short run.
SmallRun shrink_for_resume(const RunConfig& config, int64_t world, int64_t most_ranks = 16);

}  // namespace phx
