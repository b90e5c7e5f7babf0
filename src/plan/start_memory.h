// What a rank takes before its first step. Whatever it initialises or loads goes to its place at
// once: a rank never has more of the weights or of the optimizer's state than its share, and no
// copy of that. (Weights that are frozen are whole on every rank.)
#pragma once

#include "phalanx/checkpoint/load_memory.h"
#include "phalanx/core/host_side.h"
#include "phalanx/train/session.h"

namespace phx {

struct StartMemory {
  MemoryReport device;
  HostMemory host;  // of offloaded optimizer state
  // The most that the manifest of this run's checkpoints lists of the rank's stage.
  ListedPieces listed_of_stage;
};

// Of a session that has just been made.
StartMemory start_memory(const Session& session);

}  // namespace phx
