#include "phalanx/comm/transport_communicator.h"

#include <gtest/gtest.h>

#include "phalanx/comm/scratch.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/core/runtime.h"

namespace phx {
namespace {

// Threads move the bytes; what is made of them is this file's.
void run(int ranks, const std::function<void(Communicator&, Device, Stream)>& body) {
  run_thread_ranks(ranks, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
    Runtime runtime;
    std::vector<int> all;
    for (int r = 0; r < ranks; ++r) all.push_back(r);
    body(*world.group(all, "all"), runtime.device(), runtime.stream(StreamName::compute));
  });
}

// Element i of rank r.
int32_t value(int rank, int64_t i) { return int32_t(i % 1009 * 4 + rank); }

Tensor values(int rank, int64_t n, Device device) {  // [n]
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(value(rank, i));
  return from_ints(all, {n}, DType::i32, device);
}

std::span<const int32_t> ints(const Tensor& x) { return {x.data<int32_t>(), size_t(x.numel())}; }

TEST(TransportCommunicator, AllReduceIsTheSumBelowAndAboveTheDirectSize) {
  const int64_t direct = kDirectReduceBytes / (3 * 4);  // the most elements of three ranks
  for (const int64_t n : {int64_t{1}, direct, direct + 1, 3 * direct + 2})
    run(3, [&](Communicator& all, Device device, Stream stream) {
      const Tensor x = values(all.rank(), n, device);  // [n]
      all.all_reduce(x, stream);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(ints(x)[i], 3 * value(0, i) + 3) << n << ":" << i;
    });
}

TEST(TransportCommunicator, AllReduceOfMoreThanABlockIsTheSumInEveryBlock) {
  const int64_t n = 3 * (kReduceScratchBytes / (3 * 4)) + 5;  // two blocks each
  run(3, [&](Communicator& all, Device device, Stream stream) {
    const Tensor x = values(all.rank(), n, device);  // [n]
    all.all_reduce(x, stream);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(ints(x)[i], 3 * value(0, i) + 3) << i;
  });
}

TEST(TransportCommunicator, ABroadcastIsTheSameBelowAndAboveTheSizeThatIsDealtOut) {
  constexpr int64_t kDirect = (64 << 10) / 4;
  for (const int64_t n : {int64_t{1}, kDirect, kDirect + 1, 2 * kDirect + 1})
    for (const int root : {0, 2})
      run(3, [&](Communicator& all, Device device, Stream stream) {
        const Tensor x = values(all.rank(), n, device);  // [n]
        all.broadcast(x, root, stream);
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(ints(x)[i], value(root, i)) << n << ":" << i;
      });
}

TEST(TransportCommunicator, ReduceScatterGivesEveryRankItsRows) {
  run(3, [&](Communicator& all, Device device, Stream stream) {
    const Tensor full = values(all.rank(), 3 * 7, device);  // [21]
    const Tensor shard = empty({7}, DType::i32, device);    // [7]
    all.reduce_scatter(full, shard, stream);
    for (int64_t i = 0; i < 7; ++i) ASSERT_EQ(ints(shard)[i], 3 * value(0, 7 * all.rank() + i) + 3);
  });
}

TEST(TransportCommunicator, AllGatherTakesAShardThatLiesInItsPlace) {
  run(3, [&](Communicator& all, Device device, Stream stream) {
    const Tensor full = zeros({6}, DType::i32, device);  // [6]
    const Tensor own = full.rows(2 * all.rank(), 2);     // [2] of it
    own.data<int32_t>()[0] = own.data<int32_t>()[1] = all.rank() + 1;
    all.all_gather(own, full, stream);
    EXPECT_EQ(to_values(full), (std::vector<double>{1, 1, 2, 2, 3, 3}));
  });
}

TEST(TransportCommunicator, RowsOfAnAllToAllMayBeNone) {
  // Rank r sends r rows to each other one, and none to itself.
  run(3, [&](Communicator& all, Device device, Stream stream) {
    const int me = all.rank();
    std::vector<int64_t> send(3, me), receive = {0, 1, 2};
    send[size_t(me)] = receive[size_t(me)] = 0;
    const std::vector<int64_t> own(size_t(4 * me), me + 1);
    const Tensor in = from_ints(own, {2 * me, 2}, DType::i32, device);  // [rows, 2]
    const Tensor out = zeros({3 - me, 2}, DType::i32, device);          // [rows, 2]
    all.all_to_all(in, send, out, receive, stream);
    std::vector<double> expected;
    for (int r = 0; r < 3; ++r)
      if (r != me) expected.insert(expected.end(), size_t(2 * r), r + 1);
    EXPECT_EQ(to_values(out), expected);
  });
}

}  // namespace
}  // namespace phx
