// The connections of a rank to all others, which find each other through the store.
#pragma once

#include <string>
#include <vector>

#include "phalanx/comm/launch_environment.h"
#include "phalanx/comm/tcp_store.h"

namespace phx {

struct MeshConnection {
  FileHandle socket;  // none to the rank itself
  std::string where;  // the peer runs: " on node7 (10.0.0.7)"; nothing if all are on one machine
};

// By rank. Nobody can connect any more when this returns. Throws if somebody did not come within
// the time-out, or failed meanwhile.
std::vector<MeshConnection> connect_to_all(const LaunchEnvironment& environment, TcpStore& store,
                                           std::chrono::milliseconds timeout);

}  // namespace phx
