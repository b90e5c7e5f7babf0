#include <gtest/gtest.h>

#include "comm/run_meshes.h"
#include "support/gradients.h"

namespace phx {
namespace {

using testing::error_of;
using testing::run_meshes;

constexpr Channel kOne{.group = 1, .kind = Channel::message};
constexpr Channel kTwo{.group = 2, .kind = Channel::message};
constexpr Channel kAll{.group = 1, .kind = Channel::collective};

ByteView bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string received(SocketMesh& mesh, const Channel& channel, uint64_t sequence, size_t size) {
  std::string text(size, '?');
  mesh.receive(channel, sequence, 1, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(SocketMeshFrames, WhatComesBeforeItIsAskedForIsKeptByChannel) {
  run_meshes(2, [](int rank, SocketMesh& mesh) {
    if (rank == 1) {
      mesh.send(kOne, 1, 0, bytes_of("first"));
      mesh.send(kOne, 2, 0, bytes_of("second"));
      mesh.send(kTwo, 1, 0, bytes_of("other"));
      return;
    }
    EXPECT_EQ(received(mesh, kTwo, 1, 5), "other");
    EXPECT_EQ(received(mesh, kOne, 1, 5), "first");
    EXPECT_EQ(received(mesh, kOne, 2, 6), "second");
  });
}

TEST(SocketMeshFrames, AnEmptyMessageIsAMessage) {
  run_meshes(2, [](int rank, SocketMesh& mesh) {
    if (rank == 1) {
      mesh.send(kOne, 1, 0, {});
      mesh.send(kOne, 2, 0, bytes_of("x"));
      return;
    }
    EXPECT_EQ(received(mesh, kOne, 1, 0), "");
    EXPECT_EQ(received(mesh, kOne, 2, 1), "x");
  });
}

// More than a connection takes at once, and more than is read of one before the others.
TEST(SocketMeshFrames, LargeFramesCrossInBothDirections) {
  run_meshes(2, [](int rank, SocketMesh& mesh) {
    constexpr size_t kSize = (20 << 20) + 7;
    std::string out(kSize, '\0'), in(kSize, '?'), expected(kSize, '\0');
    for (size_t i = 0; i < kSize; ++i) {
      out[i] = char((i * 7 + size_t(rank)) % 251);
      expected[i] = char((i * 7 + size_t(1 - rank)) % 251);
    }
    const SocketMesh::Part part{1 - rank, bytes_of(out), std::as_writable_bytes(std::span(in))};
    mesh.exchange(kAll, 1, {&part, 1});
    EXPECT_TRUE(in == expected);
  });
}

TEST(SocketMeshFrames, AFrameOfAnotherSizeIsNamed) {
  run_meshes(2, [](int rank, SocketMesh& mesh) {
    if (rank == 1) return mesh.send(kOne, 1, 0, bytes_of("abc"));
    EXPECT_EQ(error_of([&] { received(mesh, kOne, 1, 5); }),
              "rank 1 of the group sends 3 bytes where 5 are expected");
  });
}

TEST(SocketMeshFrames, AFrameOfAnotherCallIsNamed) {
  run_meshes(2, [](int rank, SocketMesh& mesh) {
    if (rank == 1) return mesh.send(kOne, 2, 0, bytes_of("abc"));
    EXPECT_EQ(error_of([&] { received(mesh, kOne, 1, 3); }),
              "rank 1 of the group sends 0 bytes where 3 are expected");
  });
}

}  // namespace
}  // namespace phx
