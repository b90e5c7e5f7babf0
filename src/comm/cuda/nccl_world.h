// Ranks as processes with a GPU each, over NCCL; whoever started them. The ids of groups travel
// through the TCP store, over which a rank also hears that another failed.
//
// Calls are enqueued and return. A thread of its own looks after them: when NCCL reports an error,
// when another rank failed, or when a call is not done after the time-out, it ends all that is
// under way, and the next call on the rank's thread throws what it found. A rank that makes none
// asks World::check().
//
// NCCL runs the calls of one group in order, even on different streams.
#pragma once

#include <memory>

#include "phalanx/comm/launch_environment.h"
#include "phalanx/comm/world.h"

namespace phx {

// PHX_SHARE_GPU=1 lets several ranks share a GPU: NCCL is told that each is on a machine of its
// own, so that they talk over TCP. Slow, but the real code path: it tests GPU parallelism on one
// card.
std::unique_ptr<World> make_nccl_world(const LaunchEnvironment& environment,
                                       const WorldOptions& options);

}  // namespace phx
