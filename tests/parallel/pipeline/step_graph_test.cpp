#include "phalanx/parallel/pipeline/step_graph.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace phx {
namespace {

using enum StepKind;

// The graph of a schedule, asked by steps.
class Graph {
 public:
  Graph(Schedule schedule, Sends sends)
      : schedule_(std::move(schedule)), graph_(make_step_graph(schedule_, sends)) {}

  // Whether `step` of `rank` waits for `other` of `other_rank`, at first hand.
  bool waits(int rank, const ScheduleStep& step, int other_rank, const ScheduleStep& other) const {
    const std::vector<int>& before = graph_.before[size_t(node(rank, step))];
    return std::ranges::find(before, node(other_rank, other)) != before.end();
  }
  size_t size() const { return graph_.ids.size(); }
  std::vector<int> order() const { return graph_.order(); }
  const StepGraph& graph() const { return graph_; }

 private:
  int node(int rank, const ScheduleStep& step) const {
    for (size_t i = 0; i < graph_.ids.size(); ++i) {
      const StepId id = graph_.ids[i];
      if (id.rank == rank && schedule_.ranks[size_t(rank)][size_t(id.step)] == step) return int(i);
    }
    ADD_FAILURE() << "rank " << rank << " has no " << step;
    return 0;
  }

  Schedule schedule_;
  StepGraph graph_;
};

TEST(StepGraph, AForwardWaitsForItsMessageAndThatForItsSender) {
  const Graph graph(one_f_one_b({.stages = 2, .micro_batches = 2}), Sends::buffered);
  EXPECT_TRUE(graph.waits(0, {send_forward, 0}, 0, {forward, 0}));
  EXPECT_TRUE(graph.waits(1, {receive_forward, 0}, 0, {send_forward, 0}));
  EXPECT_TRUE(graph.waits(1, {forward, 0}, 1, {receive_forward, 0}));
  EXPECT_TRUE(graph.waits(0, {receive_backward, 1}, 1, {send_backward, 1}));
  EXPECT_TRUE(graph.waits(0, {backward, 1}, 0, {receive_backward, 1}));
  EXPECT_FALSE(graph.waits(1, {forward, 0}, 1, {receive_forward, 1}));
}

TEST(StepGraph, AStreamRunsItsWorkInOrder) {
  const Graph graph(one_f_one_b({.stages = 2, .micro_batches = 2}), Sends::buffered);
  EXPECT_TRUE(graph.waits(0, {send_forward, 1}, 0, {send_forward, 0}));
  EXPECT_TRUE(graph.waits(1, {receive_forward, 1}, 1, {receive_forward, 0}));
  EXPECT_TRUE(graph.waits(1, {backward, 0}, 1, {forward, 0})) << "computes, too";
}

TEST(StepGraph, OnlyARendezvousWaitsForTheOtherSide) {
  const auto schedule = one_f_one_b({.stages = 2, .micro_batches = 4, .receive_ahead = 0});
  // Rank 1 posts its receive of micro-batch 1 behind its backward of 0.
  const Graph buffered(schedule, Sends::buffered), rendezvous(schedule, Sends::rendezvous);
  EXPECT_FALSE(buffered.waits(0, {send_forward, 1}, 1, {backward, 0}));
  EXPECT_TRUE(rendezvous.waits(0, {send_forward, 1}, 1, {backward, 0}));
  // And a compute step waits for the sends of the steps before its predecessor.
  EXPECT_FALSE(buffered.waits(1, {backward, 1}, 1, {send_backward, 0}));
  EXPECT_TRUE(rendezvous.waits(1, {backward, 1}, 1, {send_backward, 0}));
}

TEST(StepGraph, AnOrderHoldsEveryStepBehindWhatItWaitsFor) {
  for (const Sends sends : {Sends::buffered, Sends::rendezvous}) {
    const Graph graph(interleaved_one_f_one_b({.stages = 3, .chunks = 2, .micro_batches = 6}),
                      sends);
    const std::vector<int> order = graph.order();
    ASSERT_EQ(order.size(), graph.size());
    std::vector<size_t> place(order.size());
    for (size_t i = 0; i < order.size(); ++i) place[size_t(order[i])] = i;
    for (size_t node = 0; node < order.size(); ++node)
      for (const int before : graph.graph().before[node])
        EXPECT_LT(place[size_t(before)], place[node]);
  }
}

TEST(StepGraph, StepsThatWaitForEachOtherAreMissingFromTheOrder) {
  // Each rank computes backward before it has sent what the other needs for it.
  Schedule stuck{.name = "stuck", .stages = 2};
  stuck.ranks = {{{forward}, {receive_backward}, {backward}, {send_forward}},
                 {{receive_forward}, {forward}, {backward}, {send_backward}}};
  const Graph graph(stuck, Sends::buffered);
  EXPECT_LT(graph.order().size(), graph.size());
  EXPECT_GE(graph.order().size(), 1u) << "the first forward runs";
}

TEST(PeerOf, AMessageAroundTheRingBelongsToTheNextChunk) {
  const Schedule schedule = interleaved_one_f_one_b({.stages = 2, .chunks = 2, .micro_batches = 2});
  const PeerStep next = peer_of(schedule, 0, {send_forward, 1, 0});
  EXPECT_EQ(next.rank, 1);
  EXPECT_EQ(next.step, (ScheduleStep{receive_forward, 1, 0}));
  const PeerStep around = peer_of(schedule, 1, {send_forward, 1, 0});
  EXPECT_EQ(around.rank, 0);
  EXPECT_EQ(around.step, (ScheduleStep{receive_forward, 1, 1}));
  const PeerStep back = peer_of(schedule, 0, {send_backward, 1, 1});
  EXPECT_EQ(back.rank, 1);
  EXPECT_EQ(back.step, (ScheduleStep{receive_backward, 1, 0}));
  EXPECT_EQ(peer_of(schedule, back.rank, back.step).step, (ScheduleStep{send_backward, 1, 1}));
}

}  // namespace
}  // namespace phx
