// How the flags of the pipeline divide the layers: what place_layers takes.
#pragma once

#include "phalanx/parallel/parallel_config.h"
#include "phalanx/parallel/pipeline/placement.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

PlacementConfig placement_config(const TransformerConfig& model, const ParallelConfig& ranks);

}  // namespace phx
