#include "phalanx/comm/communicator.h"

#include <gtest/gtest.h>

#include "phalanx/comm/meta_world.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/core/runtime.h"
#include "support/gradients.h"

namespace phx {
namespace {

using testing::error_of;

// What both ranks of a world of two say to a call.
std::string refusal(const std::function<void(Communicator&, Device, Stream)>& call) {
  std::string text;
  run_thread_ranks(2, {}, [&](World& world) {
    Runtime runtime;
    const auto tp = world.group({0, 1}, "tp");
    const std::string said =
        error_of([&] { call(*tp, runtime.device(), runtime.stream(StreamName::compute)); });
    if (world.rank() == 0) text = said;
  });
  return text;
}

TEST(Communicator, RefusesAFullThatDoesNotFitItsShard) {
  EXPECT_EQ(refusal([](Communicator& tp, Device device, Stream stream) {
              const Tensor shard = zeros({3, 4}, DType::f32, device);
              const Tensor full = zeros({5, 4}, DType::f32, device);
              tp.all_gather(shard, full, stream);
            }),
            "all_gather over tp: shard is [3, 4], so full should have 2 times its rows, but it is "
            "[5, 4]");
}

TEST(Communicator, RefusesDifferentTypes) {
  EXPECT_EQ(refusal([](Communicator& tp, Device device, Stream stream) {
              tp.reduce_scatter(zeros({4}, DType::f32, device), zeros({2}, DType::bf16, device),
                                stream);
            }),
            "reduce_scatter over tp: full is f32, but shard is bf16");
}

TEST(Communicator, RefusesToAddInEightBits) {
  EXPECT_EQ(refusal([](Communicator& tp, Device device, Stream stream) {
              tp.all_reduce(empty({4}, DType::f8e4m3, device), stream);
            }),
            "all_reduce over tp: f8e4m3 is not a type to add in; widen it first");
}

TEST(Communicator, RefusesAStrangersRank) {
  EXPECT_EQ(refusal([](Communicator& tp, Device device, Stream stream) {
              tp.send(zeros({1}, DType::f32, device), 2, stream);
            }),
            "send over tp: there is no rank 2 in a group of 2");
}

TEST(Communicator, RefusesRowsThatDoNotAddUp) {
  EXPECT_EQ(refusal([](Communicator& tp, Device device, Stream stream) {
              const int64_t rows[] = {1, 1};
              const Tensor x = zeros({3, 2}, DType::f32, device);
              tp.all_to_all(x, rows, empty_like(x), rows, stream);
            }),
            "all_to_all over tp: send_rows adds up to 2 rows, but the tensor is [3, 2]");
}

TEST(Communicator, RefusesMemoryThatIsReadAndWritten) {
  EXPECT_EQ(refusal([](Communicator& tp, Device device, Stream stream) {
              const Tensor x = zeros({4, 2}, DType::f32, device);
              tp.all_to_all(x, x, stream);
            }),
            "all_to_all over tp: in and out share memory");
  EXPECT_EQ(refusal([](Communicator& tp, Device device, Stream stream) {
              const Tensor x = zeros({4, 2}, DType::f32, device);
              tp.all_gather(x.rows(1, 2), x, stream);
            }),
            "all_gather over tp: shard lies within full, but not at the rows of rank 0");
}

TEST(Communicator, RefusesATensorOfAnotherKindOfDevice) {
  EXPECT_EQ(refusal([](Communicator& tp, Device, Stream stream) {
              Runtime meta({.kind = DeviceKind::meta});
              tp.all_reduce(empty({4}, DType::f32, meta.device()), stream);
            }),
            "all_reduce over tp: the tensor is on meta, which this group of ranks does not "
            "exchange");
}

TEST(World, RefusesAGroupWithoutItself) {
  MetaWorld world(1, 4);
  EXPECT_EQ(error_of([&] {
              world.group({0, 2}, "tp");
            }),
            "group tp: rank 1 is not among its members");
  EXPECT_EQ(error_of([&] {
              world.group({1, 4}, "tp");
            }),
            "group tp: there is no rank 4 in a world of 4");
  EXPECT_EQ(error_of([&] { world.group({1, 2, 1}, "tp"); }), "group tp: a rank is named twice");
}

}  // namespace
}  // namespace phx
