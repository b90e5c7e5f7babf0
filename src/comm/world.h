// How a run gets its World. Ranks as threads are made by run_thread_ranks (comm/thread_world.h).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace phx {

struct WorldOptions {
  // No wait is longer: its error names who did not come, and where from the call was made.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

}  // namespace phx
