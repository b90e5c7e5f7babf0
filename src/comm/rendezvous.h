// How the ranks of a launch meet: which address to call, where to listen, with which key. One
// machine keeps to itself (loopback only); on several, all ranks must know one job key.
#pragma once

#include "phalanx/comm/launch_environment.h"
#include "phalanx/comm/tcp_store.h"

namespace phx {

// Throws if there are several machines and no job key, and says how to set one.
TcpStoreOptions store_options(const LaunchEnvironment& environment,
                              std::chrono::milliseconds timeout);

// The addresses of this machine to listen on for other ranks; none: all.
Hosts addresses_to_listen_on(const LaunchEnvironment& environment);

// The message that asks for a key, with one that was just made to copy.
std::string job_key_hint();

}  // namespace phx
