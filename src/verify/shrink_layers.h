// How a model has fewer layers and its pipeline fewer stages, but stages of the same kinds.
#pragma once

#include "phalanx/parallel/pipeline/placement.h"
#include "phalanx/train/session.h"

namespace phx {

// Writes the number of layers, the flags that cut them over `stages` stages, patterns over layers
// and how many are recomputed. `before`: where the layers of the large model lie.
void shrink_layers(RunConfig& config, const Placement& before, int stages);

}  // namespace phx
