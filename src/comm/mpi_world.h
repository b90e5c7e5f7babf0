// Ranks as processes under Open MPI's mpirun. MPI only moves bytes: the sums are ours.
#pragma once

#include <memory>

#include "phalanx/comm/launch_environment.h"
#include "phalanx/comm/world.h"

namespace phx {

bool has_mpi();  // whether this build found MPI

// Once in a process: MPI cannot be started twice.
std::unique_ptr<World> make_mpi_world(const LaunchEnvironment& environment,
                                      const WorldOptions& options);

}  // namespace phx
