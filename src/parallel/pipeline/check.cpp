#include "phalanx/parallel/pipeline/check.h"

#include <algorithm>
#include <array>

#include "phalanx/base/error.h"
#include "phalanx/parallel/pipeline/step_graph.h"

namespace phx {
namespace {

std::string at(const Schedule& schedule, int rank, int step) {
  return str_cat("rank ", rank, ", step ", step, " (", schedule.ranks[rank][step], ")");
}

// Where each step of a rank stands in its list; -1 where it does not.
class Positions {
 public:
  Positions(const Schedule& schedule, int rank) : schedule_(schedule), rank_(rank) {
    for (auto& of_kind : positions_)
      of_kind.assign(size_t(schedule.micro_batches) * schedule.chunks, -1);
    for (int i = 0; i < static_cast<int>(schedule.ranks[rank].size()); ++i) add(i);
  }

  int operator()(StepKind kind, int micro_batch, int chunk) const {
    return positions_[static_cast<int>(kind)][size_t(micro_batch) * schedule_.chunks + chunk];
  }

 private:
  void add(int i) {
    const ScheduleStep& step = schedule_.ranks[rank_][i];
    PHX_CHECK(step.micro_batch >= 0 && step.micro_batch < schedule_.micro_batches &&
                  step.chunk >= 0 && step.chunk < schedule_.chunks,
              schedule_.name, " schedule, ", at(schedule_, rank_, i), ": there are ",
              schedule_.micro_batches, " micro-batches and ", schedule_.chunks, " chunks");
    int& position = positions_[static_cast<int>(step.kind)]
                              [size_t(step.micro_batch) * schedule_.chunks + step.chunk];
    PHX_CHECK(position < 0, schedule_.name, " schedule, ", at(schedule_, rank_, i),
              ": it stands at step ", position, " already");
    position = i;
  }

  const Schedule& schedule_;
  int rank_;
  std::array<std::vector<int>, kNumStepKinds> positions_;
};

struct Contents {
  bool trains = false;  // there are backwards
  bool splits = false;  // there are weight_backwards
};

Contents contents_of(const Schedule& schedule) {
  Contents contents{.splits = defers_weights(schedule)};
  for (const auto& steps : schedule.ranks)
    for (const ScheduleStep& step : steps) contents.trains |= step.kind == StepKind::backward;
  return contents;
}

// The rules within one rank's list.
class RankCheck {
 public:
  RankCheck(const Schedule& schedule, int rank, Contents contents)
      : schedule_(schedule), rank_(rank), contents_(contents), position_(schedule, rank) {}

  void check() const {
    const auto [trains, splits] = contents_;
    for (int m = 0; m < schedule_.micro_batches; ++m)
      for (int c = 0; c < schedule_.chunks; ++c) {
        const bool begins = is_model_begin(rank_, c), ends = is_model_end(schedule_, rank_, c);
        expect(StepKind::forward, m, c, true);
        expect(StepKind::backward, m, c, trains);
        expect(StepKind::weight_backward, m, c, splits);
        expect(StepKind::receive_forward, m, c, !begins);
        expect(StepKind::send_forward, m, c, !ends);
        expect(StepKind::receive_backward, m, c, trains && !ends);
        expect(StepKind::send_backward, m, c, trains && !begins);
        in_order(StepKind::receive_forward, StepKind::forward, m, c);
        in_order(StepKind::forward, StepKind::backward, m, c);
        in_order(StepKind::receive_backward, StepKind::backward, m, c);
        in_order(StepKind::backward, StepKind::weight_backward, m, c);
        right_after(StepKind::forward, StepKind::send_forward, m, c);
        right_after(StepKind::backward, StepKind::send_backward, m, c);
      }
  }

  int peak_alive() const {
    const auto [trains, splits] = contents_;
    const StepKind last = splits ? StepKind::weight_backward : StepKind::backward;
    int alive = 0, peak = 0;
    for (const ScheduleStep& step : schedule_.ranks[rank_]) {
      if (step.kind == StepKind::forward && trains) peak = std::max(peak, ++alive);
      if (step.kind == last) --alive;
    }
    return peak;
  }

 private:
  void expect(StepKind kind, int m, int c, bool wanted) const {
    const int position = position_(kind, m, c);
    PHX_CHECK(!wanted || position >= 0, schedule_.name, " schedule, rank ", rank_,
              " lacks a step: ", ScheduleStep{kind, m, c});
    PHX_CHECK(wanted || position < 0, schedule_.name, " schedule, ", at(schedule_, rank_, position),
              ": nobody is there to exchange it with");
  }

  void in_order(StepKind first, StepKind second, int m, int c) const {
    const int a = position_(first, m, c), b = position_(second, m, c);
    PHX_CHECK(a < b || a < 0 || b < 0, schedule_.name, " schedule, ", at(schedule_, rank_, b),
              ": it comes before ", at(schedule_, rank_, a));
  }

  void right_after(StepKind compute, StepKind send, int m, int c) const {
    const int a = position_(compute, m, c), b = position_(send, m, c);
    if (b < 0) return;
    PHX_CHECK(b == a + 1, schedule_.name, " schedule, ", at(schedule_, rank_, b),
              ": it does not stand right after ", at(schedule_, rank_, a));
  }

  const Schedule& schedule_;
  int rank_;
  Contents contents_;
  Positions position_;
};

std::vector<int> positions_of(const Schedule& schedule, int rank, StepKind kind) {
  std::vector<int> result;
  for (int i = 0; i < static_cast<int>(schedule.ranks[rank].size()); ++i)
    if (schedule.ranks[rank][i].kind == kind) result.push_back(i);
  return result;
}

// Both ends of the link that `sender` sends into name the same messages in the same order.
void check_link(const Schedule& schedule, int sender, StepKind send, StepKind receive) {
  const int step_around = send == StepKind::send_forward ? 1 : schedule.stages - 1;
  const int receiver = (sender + step_around) % schedule.stages;
  const std::vector<int> sends = positions_of(schedule, sender, send);
  const std::vector<int> receives = positions_of(schedule, receiver, receive);
  for (size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
    const PeerStep peer = peer_of(schedule, sender, schedule.ranks[sender][sends[i]]);
    PHX_CHECK(peer.step == schedule.ranks[receiver][receives[i]], schedule.name, " schedule, ",
              at(schedule, receiver, receives[i]), " is message ", i, " of its link, where rank ",
              sender, " sends ", at(schedule, sender, sends[i]));
  }
  // The numbers agree: every rank has been found to have all of its messages.
}

// Some steps wait for each other: goes from a stuck step to one that it waits for, until it comes
// round, and tells the circle.
std::string circle(const Schedule& schedule, const StepGraph& graph, const std::vector<int>& done) {
  std::vector<bool> is_done(graph.ids.size());
  for (const int node : done) is_done[node] = true;
  const auto stuck = [&](int node) { return !is_done[node]; };
  int node = 0;
  while (is_done[node]) ++node;
  std::vector<int> path;
  while (std::find(path.begin(), path.end(), node) == path.end()) {
    path.push_back(node);
    node = *std::find_if(graph.before[node].begin(), graph.before[node].end(), stuck);
  }
  std::string text;
  for (auto i = std::find(path.begin(), path.end(), node); i != path.end(); ++i)
    text += at(schedule, graph.ids[*i].rank, graph.ids[*i].step) + " waits for ";
  return text + at(schedule, graph.ids[node].rank, graph.ids[node].step);
}

void check_progress(const Schedule& schedule, Sends sends) {
  const StepGraph graph = make_step_graph(schedule, sends);
  const std::vector<int> order = graph.order();
  if (order.size() == graph.ids.size()) return;
  throw Error(str_cat(schedule.name, " schedule: it gets stuck when sends ",
                      sends == Sends::buffered ? "are buffered" : "wait for their receives", ": ",
                      circle(schedule, graph, order)));
}

}  // namespace

ScheduleReport check_schedule(const Schedule& schedule) {
  PHX_CHECK(schedule.stages >= 1 && schedule.chunks >= 1 && schedule.micro_batches >= 1 &&
                schedule.ranks.size() == size_t(schedule.stages),
            schedule.name, " schedule: ", schedule.stages, " stages, ", schedule.chunks,
            " chunks, ", schedule.micro_batches, " micro-batches and the lists of ",
            schedule.ranks.size(), " ranks do not go together");
  const Contents contents = contents_of(schedule);
  ScheduleReport report;
  for (int rank = 0; rank < schedule.stages; ++rank) {
    const RankCheck rank_check(schedule, rank, contents);
    rank_check.check();
    report.peak_alive.push_back(rank_check.peak_alive());
  }
  for (int rank = 0; rank < schedule.stages; ++rank) {
    check_link(schedule, rank, StepKind::send_forward, StepKind::receive_forward);
    check_link(schedule, rank, StepKind::send_backward, StepKind::receive_backward);
  }
  check_progress(schedule, Sends::buffered);
  check_progress(schedule, Sends::rendezvous);
  return report;
}

}  // namespace phx
