// How a run gets its World. Ranks as threads are made by run_thread_ranks (comm/thread_world.h);
// otherwise whoever started this process decides.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "phalanx/comm/communicator.h"
#include "phalanx/comm/settings.h"

namespace phx {

struct WorldOptions {
  // No wait is longer: its error names who did not come, and where from the call was made.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // Of this rank. Ranks that are processes compare them when they have met, and all throw if
  // something differs.
  Settings settings = {};
};

// This process's World, by its environment (comm/launch_environment.h) and device:
//   no launcher, or one rank    a world of one, which talks to nobody
//   cpu                         MPI under mpirun if this build has it, else TCP between processes
//   cuda                        NCCL, whoever started the ranks
// Returns when all ranks are there.
std::unique_ptr<World> make_world(DeviceKind device, const WorldOptions& options);

// A world of one.
std::unique_ptr<World> make_solo_world();

}  // namespace phx
