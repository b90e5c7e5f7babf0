// A rank alone: what it gets instead of others' data, how long that takes, and that a whole step of
// a layout runs so, with the memory that a plan says.
#include "phalanx/plan/rehearsal_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "phalanx/plan/rank_plan.h"
#include "plan/countable_run.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::ElementsAre;

Tensor numbers(std::initializer_list<double> values) {
  return from_values(std::vector<double>(values), {int64_t(values.size())}, DType::f32,
                     test_device());
}

struct ThirdOfFour {
  explicit ThirdOfFour(const Wire& wire = {}) : world(2, 4, wire) {
    group = world.group({0, 1, 2, 3}, "dp");
  }
  RehearsalWorld world;
  std::unique_ptr<Communicator> group;
  Stream stream = test_device().runtime().stream(StreamName::dp);
};

TEST(RehearsalWorld, OwnDataStandInForThoseOfOthers) {
  ThirdOfFour rank;
  const Tensor all = zeros({4}, DType::f32, test_device());
  rank.group->all_gather(numbers({7}), all, rank.stream);
  EXPECT_THAT(to_values(all), ElementsAre(7, 7, 7, 7));
  const Tensor piece = zeros({1}, DType::f32, test_device());
  rank.group->reduce_scatter(numbers({1, 2, 3, 4}), piece, rank.stream);
  EXPECT_THAT(to_values(piece), ElementsAre(3)) << "its own rows";
  const Tensor x = numbers({5, 6});
  rank.group->all_reduce(x, rank.stream);
  EXPECT_THAT(to_values(x), ElementsAre(5, 6));
  const Tensor sent = numbers({8, 9}), received = zeros({2}, DType::f32, test_device());
  const Message messages[] = {{Message::Kind::send, sent, 3},
                              {Message::Kind::receive, received, 1}};
  rank.group->exchange(messages, rank.stream);
  EXPECT_THAT(to_values(received), ElementsAre(8, 9));
  const Tensor out = zeros({3}, DType::f32, test_device());
  const int64_t send[] = {1, 1, 0, 0}, receive[] = {0, 3, 0, 0};
  rank.group->all_to_all(numbers({1, 2}), send, out, receive, rank.stream);
  EXPECT_THAT(to_values(out), ElementsAre(1, 2, 1));
}

TEST(RehearsalWorld, TransfersTakeTheTimeOfTheWire) {
  const auto took = [](const Wire& wire) {
    ThirdOfFour rank(wire);
    const Tensor all = zeros({40000}, DType::f32, test_device());  // 120,000 bytes are sent
    const auto start = std::chrono::steady_clock::now();
    rank.group->all_gather(all.rows(20000, 10000), all, rank.stream);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  EXPECT_GE(took({.bytes_per_second = 2e6}), 0.06);
  EXPECT_GE(took({.seconds_per_call = 0.05}), 0.05);
}

TEST(RehearsalWorld, WhatIsOnlySentTakesItsTimeToo) {
  ThirdOfFour rank({.bytes_per_second = 2e6});
  const Tensor in = zeros({30000}, DType::f32, test_device());  // 120,000 bytes
  const Tensor out = zeros({0}, DType::f32, test_device());
  const int64_t send[] = {10000, 10000, 0, 10000}, receive[] = {0, 0, 0, 0};
  const auto start = std::chrono::steady_clock::now();
  rank.group->all_to_all(in, send, out, receive, rank.stream);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took.count(), 0.06);
}

TEST(RehearsalWorld, ARankOfEightTrainsAloneInTheMemoryOfItsPlan) {
  RunConfig config = countable_run();
  config.parallel.use_megatron_fsdp = true;
  config.train.global_batch_size = 8 * config.train.micro_batch_size;
  const RankPlan plan = plan_rank(config, 8, 3, {.target = DeviceKind::cpu});
  Runtime runtime({.kind = DeviceKind::cpu});
  RehearsalWorld world(3, 8, {});
  const Mesh mesh(world, make_layout(config.layout(), 8).mesh);
  Session session(config, Sources::made_up(config), runtime.device(), mesh);
  for (int i = 0; i < 5; ++i) {
    session.train_batches.load(0);
    session.step.run(session.train_batches, {.iteration = i + 1, .update = i + 1, .lr = 1e-3});
    const StepResults results = session.step.collect();
    EXPECT_TRUE(std::isfinite(results.loss_sum));
  }
  EXPECT_GT(runtime.allocator().report().replayed_steps, 0);
  const MemoryReport& real = runtime.allocator().report();
  EXPECT_EQ(real.peak_total, plan.memory.peak_total);
  EXPECT_EQ(real.arena, plan.memory.arena);
}

TEST(RehearsalWorld, SaysWhatItIsAndRefusesARankThatIsNotThere) {
  EXPECT_EQ(RehearsalWorld(1, 8, {}).description(), "rank 1 of 8, rehearsed without the others");
  EXPECT_THAT(error_of([] { RehearsalWorld(8, 8, {}); }),
              ::testing::HasSubstr("there is no rank 8 in a world of 8"));
}

}  // namespace
}  // namespace phx
