#include "phalanx/parallel/pipeline/step_graph.h"

#include <array>

#include "phalanx/base/error.h"

namespace phx {
namespace {

bool is_send(StepKind kind) {
  return kind == StepKind::send_forward || kind == StepKind::send_backward;
}

// Which node a step is; -1 where the schedule has no such step.
class NodeTable {
 public:
  explicit NodeTable(const Schedule& schedule)
      : schedule_(schedule), nodes_(index(schedule.stages, {}), -1) {
    for (int rank = 0; rank < schedule.stages; ++rank)
      for (const ScheduleStep& step : schedule.ranks[rank]) nodes_[index(rank, step)] = size_++;
  }
  int size() const { return size_; }
  int at(int rank, const ScheduleStep& step) const { return nodes_[index(rank, step)]; }
  int at(const PeerStep& peer) const { return at(peer.rank, peer.step); }

 private:
  size_t index(int rank, const ScheduleStep& step) const {
    return ((size_t(rank) * kNumStepKinds + static_cast<int>(step.kind)) * schedule_.micro_batches +
            step.micro_batch) *
               schedule_.chunks +
           step.chunk;
  }
  const Schedule& schedule_;
  std::vector<int> nodes_;
  int size_ = 0;
};

// The streams of one rank while its list is read: what ran last on each, and the sends under way.
class RankReader {
 public:
  RankReader(Sends sends, std::vector<std::vector<int>>& before) : sends_(sends), before_(before) {
    last_message_.fill(-1);
  }

  void add(StepKind kind, int node) {
    std::vector<int>& before = before_[node];
    if (last_compute_ >= 0) before.push_back(last_compute_);
    if (is_compute(kind)) {
      wait_for_old_sends(before);
      last_compute_ = node;
      ++num_computes_;
      return;
    }
    int& last = last_message_[static_cast<int>(kind)];
    if (last >= 0) before.push_back(last);
    last = node;
    if (is_send(kind)) under_way_.push_back({node, num_computes_});
  }

 private:
  void wait_for_old_sends(std::vector<int>& before) {
    if (sends_ == Sends::buffered) return;
    while (first_under_way_ < under_way_.size() &&
           under_way_[first_under_way_].num_computes + kSendHold <= num_computes_)
      before.push_back(under_way_[first_under_way_++].node);
  }

  struct UnderWay {
    int node, num_computes;  // compute steps before the send
  };
  Sends sends_;
  std::vector<std::vector<int>>& before_;
  int last_compute_ = -1, num_computes_ = 0;
  std::array<int, kNumStepKinds> last_message_;  // by kind
  std::vector<UnderWay> under_way_;
  size_t first_under_way_ = 0;
};

}  // namespace

PeerStep peer_of(const Schedule& schedule, int rank, const ScheduleStep& step) {
  const int last = schedule.stages - 1;
  const int next = rank == last ? 0 : rank + 1, previous = rank == 0 ? last : rank - 1;
  // Around the ring the model goes on in the next chunk.
  const int chunk_after = step.chunk + (rank == last ? 1 : 0);
  const int chunk_before = step.chunk - (rank == 0 ? 1 : 0);
  const int m = step.micro_batch;
  switch (step.kind) {
    case StepKind::send_forward:
      return {next, {StepKind::receive_forward, m, chunk_after}};
    case StepKind::receive_forward:
      return {previous, {StepKind::send_forward, m, chunk_before}};
    case StepKind::send_backward:
      return {previous, {StepKind::receive_backward, m, chunk_before}};
    case StepKind::receive_backward:
      return {next, {StepKind::send_backward, m, chunk_after}};
    default:
      PHX_ASSERT(false, step, " is no message");
      return {};
  }
}

StepGraph make_step_graph(const Schedule& schedule, Sends sends) {
  const NodeTable nodes(schedule);
  StepGraph graph;
  graph.before.resize(nodes.size());
  for (int rank = 0; rank < schedule.stages; ++rank) {
    RankReader reader(sends, graph.before);
    for (int i = 0; i < static_cast<int>(schedule.ranks[rank].size()); ++i) {
      reader.add(schedule.ranks[rank][i].kind, static_cast<int>(graph.ids.size()));
      graph.ids.push_back({rank, i});
    }
  }
  for (size_t node = 0; node < graph.ids.size(); ++node) {
    const auto [rank, i] = graph.ids[node];
    ScheduleStep step = schedule.ranks[rank][i];
    if (is_send(step.kind)) {
      const int receive = nodes.at(peer_of(schedule, rank, step));
      // Before the receive waits for the send: these are what must be so for it to run.
      if (sends == Sends::rendezvous)
        graph.before[node].insert(graph.before[node].end(), graph.before[receive].begin(),
                                  graph.before[receive].end());
    } else if (step.kind == StepKind::forward || step.kind == StepKind::backward) {
      step.kind =
          step.kind == StepKind::forward ? StepKind::receive_forward : StepKind::receive_backward;
      const int input = nodes.at(rank, step);
      if (input >= 0) graph.before[node].push_back(input);
    }
  }
  for (size_t node = 0; node < graph.ids.size(); ++node) {
    const auto [rank, i] = graph.ids[node];
    const ScheduleStep& step = schedule.ranks[rank][i];
    if (is_compute(step.kind) || is_send(step.kind)) continue;
    graph.before[node].push_back(nodes.at(peer_of(schedule, rank, step)));
  }
  return graph;
}

std::vector<int> StepGraph::order() const {
  std::vector<std::vector<int>> after(ids.size());
  std::vector<int> waiting(ids.size());
  std::vector<int> result;
  for (size_t node = 0; node < ids.size(); ++node) {
    waiting[node] = static_cast<int>(before[node].size());
    for (const int other : before[node]) after[other].push_back(static_cast<int>(node));
    if (waiting[node] == 0) result.push_back(static_cast<int>(node));
  }
  for (size_t i = 0; i < result.size(); ++i)
    for (const int node : after[result[i]])
      if (--waiting[node] == 0) result.push_back(node);
  return result;
}

}  // namespace phx
