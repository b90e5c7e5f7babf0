// Ranks as threads of one process: any layout on a laptop, no launcher. Waits sleep, so that many
// ranks share few cores.
#pragma once

#include <functional>

#include "phalanx/comm/world.h"

namespace phx {

// Runs `body` on `num_ranks` threads, each with its World, and returns when all have ended. A rank
// whose body throws ends the others: their waits throw "rank 3 failed: <message>", and the first
// exception is thrown here.
void run_thread_ranks(int num_ranks, const WorldOptions& options,
                      const std::function<void(World&)>& body);

}  // namespace phx
