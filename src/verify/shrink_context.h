// Context parallelism of a run, made small: part of verify/shrink.h.
#pragma once

#include <string>

#include "phalanx/parallel/parallel_config.h"

namespace phx {

// Layers of a2a+p2p still do both, where there are ranks for it.
void shrink_context_ranks(ParallelConfig& ranks, int64_t cp);
// Each way that some layer has still has one, in turn. With fewer layers than ways the last ways
// are lost: ways_of_layers shows it.
void share_out_context_comms(ParallelConfig& ranks, int64_t layers);
// "p2p a2a": each way once.
std::string ways_of_layers(const ParallelConfig& ranks);

}  // namespace phx
