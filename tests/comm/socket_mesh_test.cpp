#include "phalanx/comm/socket_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <thread>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Before rank 1 connects to rank 0, somebody else does who says nothing.
TEST(SocketMesh, ASilentConnectionDoesNotHoldUpTheStart) {
  const int port = listen_on(0).port;
  const auto begin = std::chrono::steady_clock::now();
  const auto run = [&](int rank) {
    TcpStore store({.port = port, .rank = rank, .size = 2, .timeout = 60s});
    FileHandle silent;
    if (rank == 1) {
      std::istringstream address(store.get("mesh/address/0"));
      int mesh_port = 0;
      address >> mesh_port;
      silent = connect_to(kLoopback, mesh_port, deadline_in(60s));
    }
    SocketMesh mesh({.launcher = "a test", .rank = rank, .size = 2}, store, 60s, [] {});
    const Channel channel{.group = 1, .kind = Channel::message};
    std::byte word{42}, heard{};
    if (rank == 1) {
      mesh.send(channel, 1, 0, {&word, 1});
    } else {
      mesh.receive(channel, 1, 1, {&heard, 1});
      EXPECT_EQ(heard, word);
    }
  };
  std::thread zero([&] { run(0); });
  run(1);
  zero.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST(SocketMesh, NobodyCanConnectWhenAllAreThere) {
  const int port = listen_on(0).port;
  const auto run = [&](int rank) {
    TcpStore store({.port = port, .rank = rank, .size = 2, .timeout = 20s});
    SocketMesh mesh({.launcher = "a test", .rank = rank, .size = 2}, store, 20s, [] {});
    std::istringstream address(store.get("mesh/address/0"));
    int mesh_port = 0;
    address >> mesh_port;
    store.set(str_cat("connected/", rank), "");
    store.get(str_cat("connected/", 1 - rank));
    EXPECT_GT(mesh_port, 0);
    EXPECT_THAT(try_to_reach({kLoopback}, mesh_port, deadline_in(10s)).why,
                HasSubstr("Connection refused"));
    store.set(str_cat("done/", rank), "");
    store.get(str_cat("done/", 1 - rank));
  };
  std::thread zero([&] { run(0); });
  run(1);
  zero.join();
}

}  // namespace
}  // namespace phx
