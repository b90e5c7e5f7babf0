#include <gtest/gtest.h>

#include <atomic>

#include "comm/run_meshes.h"
#include "support/gradients.h"

namespace phx {
namespace {

using testing::error_of;
using testing::run_meshes;

constexpr Channel kChannel{.group = 1, .kind = Channel::message};

void receive_byte(SocketMesh& mesh, int peer) {
  std::byte heard{};
  mesh.receive(kChannel, 1, peer, {&heard, 1});
}

TEST(SocketMeshEnd, AFailureIsHeardByAllAndOnlyItsRankIsTheFirst) {
  std::atomic<int> own[3] = {};
  run_meshes(
      3,
      [](int rank, SocketMesh& mesh) {
        if (rank == 1) return mesh.fail("out of coffee");
        EXPECT_EQ(error_of([&] { receive_byte(mesh, rank == 0 ? 2 : 0); }),
                  "rank 1 failed: out of coffee");
        EXPECT_TRUE(mesh.failed());
        EXPECT_EQ(error_of([&] { mesh.check(); }), "rank 1 failed: out of coffee");
      },
      [&](int rank) { ++own[rank]; });
  EXPECT_EQ(own[0], 0);
  EXPECT_EQ(own[1], 1);
  EXPECT_EQ(own[2], 0);
}

TEST(SocketMeshEnd, TheFirstFailureStays) {
  run_meshes(2, [](int rank, SocketMesh& mesh) {
    if (rank == 1) {
      mesh.fail("one thing");
      mesh.fail("another");
    }
    EXPECT_EQ(error_of([&] { receive_byte(mesh, 1 - rank); }), "rank 1 failed: one thing");
  });
}

TEST(SocketMeshEnd, WhoLeavesInGoodOrderHasNotFailed) {
  run_meshes(2, [](int rank, SocketMesh& mesh) {
    if (rank == 1) return;
    EXPECT_EQ(error_of([&] { receive_byte(mesh, 1); }), "rank 1 has ended");
    EXPECT_FALSE(mesh.failed());
    mesh.check();
  });
}

TEST(SocketMeshEnd, WhatWasSentBeforeLeavingArrives) {
  run_meshes(2, [](int rank, SocketMesh& mesh) {
    std::vector<std::byte> bytes(8 << 20, std::byte{7});  // more than the connection holds
    if (rank == 1) return mesh.send(kChannel, 1, 0, bytes);
    std::vector<std::byte> heard(bytes.size());
    mesh.receive(kChannel, 1, 1, heard);
    EXPECT_EQ(heard, bytes);
  });
}

TEST(SocketMeshEnd, AfterAFailureNothingIsSent) {
  run_meshes(2, [](int rank, SocketMesh& mesh) {
    EXPECT_FALSE(mesh.failed());
    if (rank == 1) return mesh.fail("its own reason");
    EXPECT_EQ(error_of([&] { receive_byte(mesh, 1); }), "rank 1 failed: its own reason");
    // A rank passes on what it heard, and nothing can be sent any more.
    EXPECT_EQ(error_of([&] { mesh.send(kChannel, 1, 1, {}); }), "rank 1 failed: its own reason");
  });
}

}  // namespace
}  // namespace phx
