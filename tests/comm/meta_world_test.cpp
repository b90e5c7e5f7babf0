#include "phalanx/comm/meta_world.h"

#include <gtest/gtest.h>

#include "phalanx/comm/thread_world.h"
#include "phalanx/core/runtime.h"
#include "support/gradients.h"

namespace phx {
namespace {

using testing::error_of;

TEST(MetaWorld, CountsWhatARankWouldSend) {
  MetaWorld world(2, 8);
  Runtime runtime({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  const Stream stream = runtime.stream(StreamName::compute);
  const auto tp = world.group({0, 1, 2, 3}, "tp");
  const auto one = world.group({2}, "one");
  const Tensor x = empty({8, 4}, DType::bf16, runtime.device());  // 64 bytes
  const Tensor shard = empty({2, 4}, DType::bf16, runtime.device());
  tp->all_reduce(x, stream);
  tp->all_reduce(x, stream);
  tp->all_gather(shard, x, stream);
  tp->reduce_scatter(x, shard, stream);
  tp->broadcast(x, 1, stream);
  tp->all_to_all(x, x, stream);
  tp->send(x, 3, stream);
  tp->receive(x, 1, stream);
  one->all_reduce(x, stream);

  const auto sent = [&](CommOp op) { return world.traffic().at({"tp", op}).bytes_sent; };
  EXPECT_EQ(sent(CommOp::all_reduce), 2 * 96);
  EXPECT_EQ(world.traffic().at({"tp", CommOp::all_reduce}).calls, 2);
  EXPECT_EQ(sent(CommOp::all_gather), 48);
  EXPECT_EQ(sent(CommOp::reduce_scatter), 48);
  EXPECT_EQ(sent(CommOp::broadcast), 64);
  EXPECT_EQ(sent(CommOp::all_to_all), 48);
  EXPECT_EQ(sent(CommOp::send), 64);
  EXPECT_EQ(sent(CommOp::receive), 0);
  EXPECT_FALSE(world.traffic().contains({"one", CommOp::all_reduce})) << "talks to nobody";
  world.reset_traffic();
  EXPECT_TRUE(world.traffic().empty());
}

TEST(MetaWorld, OfUnevenRowsItsOwnAreNotSent) {
  MetaWorld world(1, 2);
  Runtime runtime({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  const auto ep = world.group({0, 1}, "ep");
  const Tensor in = empty({5, 4}, DType::f32, runtime.device());   // 16 bytes a row
  const Tensor out = empty({6, 4}, DType::f32, runtime.device());  // [rows, h]
  const int64_t send[] = {1, 4}, receive[] = {2, 4};
  ep->all_to_all(in, send, out, receive, runtime.stream(StreamName::compute));
  EXPECT_EQ(world.traffic().at({"ep", CommOp::all_to_all}).bytes_sent, 16);
  ep->barrier();
  EXPECT_EQ(world.traffic().at({"ep", CommOp::barrier}).calls, 1);
}

TEST(MetaWorld, KnowsItsPlaceAndRefusesOneThatIsNotThere) {
  MetaWorld world(2, 8);
  EXPECT_EQ(world.rank(), 2);
  EXPECT_EQ(world.size(), 8);
  EXPECT_EQ(world.description(), "rank 2 of 8, planned without the others");
  EXPECT_EQ(error_of([] { MetaWorld(8, 8); }), "there is no rank 8 in a world of 8");
  EXPECT_EQ(error_of([] { MetaWorld(0, 0); }), "there is no rank 0 in a world of 0");
}

TEST(MetaWorld, AllocatesLikeThreads) {
  const auto calls = [](World& world, Runtime& runtime) {
    const auto all = world.group({0, 1, 2}, "all");
    const Stream stream = runtime.stream(StreamName::compute);
    for (int64_t n : {5, 1000003}) {
      const Tensor full = empty({3 * n}, DType::f32, runtime.device(), Purpose::activations);
      const Tensor shard = empty({n}, DType::f32, runtime.device(), Purpose::activations);
      all->all_reduce(full, stream);
      all->reduce_scatter(full, shard, stream);
      all->all_gather(shard, full, stream);
    }
    return runtime.allocator().report();
  };
  MemoryReport planned;
  {
    MetaWorld world(1, 3);
    Runtime runtime({.kind = DeviceKind::meta, .target = DeviceKind::cpu});
    planned = calls(world, runtime);
  }
  run_thread_ranks(3, {}, [&](World& world) {
    Runtime runtime;
    const MemoryReport real = calls(world, runtime);
    EXPECT_EQ(real.peak_total, planned.peak_total);
    EXPECT_EQ(real.peak, planned.peak);
    EXPECT_GT(real.peak[size_t(Purpose::communication)], 0);
    EXPECT_LE(real.peak[size_t(Purpose::communication)], 4 << 20);
  });
}

}  // namespace
}  // namespace phx
