#include "phalanx/comm/mesh_connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "phalanx/comm/network.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;

// Every pair talks over its own connection: each rank says its number to all others.
TEST(MeshConnections, EveryRankReachesEveryOther) {
  constexpr int kSize = 3;
  const int port = listen_on(0).port;
  const auto run = [&](int rank) {
    TcpStore store({.port = port, .rank = rank, .size = kSize, .timeout = 20s});
    const auto all =
        connect_to_all({.launcher = "a test", .rank = rank, .size = kSize}, store, 20s);
    ASSERT_EQ(all.size(), size_t{kSize});
    EXPECT_FALSE(all[rank].socket.is_open()) << "none to itself";
    for (int r = 0; r < kSize; ++r) {
      if (r == rank) continue;
      EXPECT_EQ(all[r].where, "") << "all are on one machine";
      const std::byte own{uint8_t(10 * rank + r)};
      send_all(all[r].socket, {&own, 1}, deadline_in(10s), "a peer");
    }
    for (int r = 0; r < kSize; ++r) {
      if (r == rank) continue;
      std::byte heard{};
      receive_all(all[r].socket, {&heard, 1}, deadline_in(10s), "a peer");
      EXPECT_EQ(int(heard), 10 * r + rank);
    }
  };
  std::thread zero([&] { run(0); }), one([&] { run(1); });
  run(2);
  zero.join();
  one.join();
}

// What ranks 0 and 1 of two machines say about where they listen, with `interface` as --interface.
std::vector<std::string> published(const std::string& interface) {
  const int port = listen_on(0).port;
  std::vector<std::string> said(2);
  const auto run = [&](int rank) {
    TcpStore store({.port = port, .rank = rank, .size = 2, .timeout = 20s, .one_machine = false});
    const auto all = connect_to_all({.launcher = "a test",
                                     .rank = rank,
                                     .size = 2,
                                     .one_machine = false,
                                     .interface = interface},
                                    store, 20s);
    EXPECT_TRUE(all[1 - rank].socket.is_open());
    said[rank] = store.get(str_cat("mesh/address/", rank));
    store.set(str_cat("done/", rank), "");
    store.get(str_cat("done/", 1 - rank));
  };
  std::thread zero([&] { run(0); });
  run(1);
  zero.join();
  return said;
}

// The second machine's ranks would call themselves there. They know how they reached the master.
TEST(MeshConnections, ALoopbackAddressIsNotSaidToOtherMachines) {
  for (const std::string& entry : published("")) {
    EXPECT_THAT(entry, HasSubstr(host_name()));
    EXPECT_THAT(entry, Not(HasSubstr("127.0.0.1")));
    EXPECT_THAT(entry, Not(HasSubstr("::")));
  }
}

TEST(MeshConnections, TheAddressesOfANamedInterfaceAreSaid) {
  for (const char* interface : {"lo", "127.0.0.1"})
    for (const std::string& entry : published(interface))
      EXPECT_THAT(entry, HasSubstr(host_name() + " 127.0.0.1")) << interface;
}

// Rank 0 arrives, and goes no further.
TEST(MeshConnections, ARankThatDoesNotSayWhereItListensIsNamed) {
  const int port = listen_on(0).port;
  std::thread zero([&] {
    TcpStore store({.port = port, .size = 2, .timeout = 20s});
    store.abandon();
    EXPECT_EQ(store.get("done"), "");
  });
  {
    TcpStore store({.port = port, .rank = 1, .size = 2, .timeout = 1s});
    EXPECT_EQ(
        error_of([&] { connect_to_all({.launcher = "a test", .rank = 1, .size = 2}, store, 1s); }),
        "rank 0 has arrived, but does not say where it listens: rank 1 waited for 1 s");
    store.set("done", "");
  }
  zero.join();
}

// Rank 2 reads that rank 1 listens where rank 0 does, which still waits for rank 1.
TEST(MeshConnections, ACallThatEndsAtAnotherRankIsRefused) {
  const int port = listen_on(0).port;
  const auto run = [&](int rank) {
    TcpStore store({.port = port, .rank = rank, .size = 3, .timeout = 20s});
    store.abandon();
    const auto connect = [&] {
      connect_to_all({.launcher = "a test", .rank = rank, .size = 3}, store, 20s);
    };
    if (rank == 0) {
      EXPECT_EQ(error_of(connect), "the test has ended");
    } else if (rank == 1) {
      EXPECT_EQ(error_of([&] { store.get("never"); }), "the test has ended");
    } else {
      store.set("mesh/address/1", store.get("mesh/address/0"));
      EXPECT_THAT(error_of(connect),
                  HasSubstr(" is not rank 1 of this run, though that is where it listens"));
      store.fail("the test has ended");
    }
  };
  ::testing::internal::CaptureStdout();
  std::thread zero([&] { run(0); }), one([&] { run(1); });
  run(2);
  zero.join();
  one.join();
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("turned away a connection from 127.0.0.1, which does not know the job's"));
}

}  // namespace
}  // namespace phx
