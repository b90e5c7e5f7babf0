// Ranks as threads that talk over TCP, for tests.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "phalanx/comm/socket_mesh.h"

namespace phx::testing {

// `body` on a thread for each rank, with its mesh.
inline void run_meshes(
    int size, const std::function<void(int rank, SocketMesh& mesh)>& body,
    const std::function<void(int rank)>& on_own_failure = [](int) {}) {
  const int port = listen_on(0).port;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      TcpStore store(
          {.port = port, .rank = rank, .size = size, .timeout = std::chrono::seconds(20)});
      SocketMesh mesh({.launcher = "a test", .rank = rank, .size = size}, store,
                      std::chrono::seconds(20), [&, rank] { on_own_failure(rank); });
      body(rank, mesh);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace phx::testing
