// Context parallelism of a run, made small: part of verify/shrink.h.
#pragma once

#include "phalanx/parallel/parallel_config.h"

namespace phx {

// Layers of a2a+p2p still do both, where there are ranks for it.
void shrink_context_ranks(ParallelConfig& ranks, int64_t cp);
// Each way that some layer has still has one, in turn.
void share_out_context_comms(ParallelConfig& ranks, int64_t layers);

}  // namespace phx
