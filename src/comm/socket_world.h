// Ranks as processes that talk over TCP: what `phalanx launch`, torchrun and srun start on CPUs.
#pragma once

#include <memory>

#include "phalanx/comm/launch_environment.h"
#include "phalanx/comm/world.h"

namespace phx {

std::unique_ptr<World> make_socket_world(const LaunchEnvironment& environment,
                                         const WorldOptions& options);

}  // namespace phx
