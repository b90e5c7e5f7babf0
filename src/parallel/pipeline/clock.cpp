#include "phalanx/parallel/pipeline/clock.h"

#include <algorithm>
#include <numeric>

#include "phalanx/base/error.h"

namespace phx {

double duration_of(StepKind kind, const StepDurations& durations, bool defers_weights) {
  switch (kind) {
    case StepKind::forward:
      return durations.forward;
    case StepKind::backward:
      return durations.backward + (defers_weights ? 0. : durations.weight_backward);
    case StepKind::weight_backward:
      return durations.weight_backward;
    default:
      return 0.;  // messages
  }
}

double Timeline::bubble() const {
  const double worked = std::accumulate(busy.begin(), busy.end(), 0.);
  return 1. - worked / (makespan * static_cast<double>(busy.size()));
}

Timeline simulate(const Schedule& schedule, const StepDurations& durations, Sends sends) {
  const StepGraph graph = make_step_graph(schedule, sends);
  const std::vector<int> order = graph.order();
  PHX_CHECK(order.size() == graph.ids.size(), schedule.name,
            " schedule gets stuck: check_schedule says where");
  const bool defers = defers_weights(schedule);
  std::vector<double> begin(graph.ids.size()), end(graph.ids.size());
  for (const int node : order) {
    for (const int other : graph.before[node]) begin[node] = std::max(begin[node], end[other]);
    const auto [rank, step] = graph.ids[node];
    end[node] = begin[node] + duration_of(schedule.ranks[rank][step].kind, durations, defers);
  }
  Timeline timeline;
  timeline.ranks.resize(schedule.stages);
  timeline.busy.resize(schedule.stages);
  for (size_t node = 0; node < graph.ids.size(); ++node) {
    const auto [rank, i] = graph.ids[node];
    const ScheduleStep& step = schedule.ranks[rank][i];
    timeline.makespan = std::max(timeline.makespan, end[node]);
    if (!is_compute(step.kind)) continue;
    timeline.ranks[rank].push_back({step, begin[node], end[node]});
    timeline.busy[rank] += end[node] - begin[node];
  }
  return timeline;
}

double one_f_one_b_bubble(int stages, int micro_batches) {
  return interleaved_bubble(stages, 1, micro_batches);
}

double interleaved_bubble(int stages, int chunks, int micro_batches) {
  return (stages - 1.) / (double(micro_batches) * chunks + stages - 1.);
}

double zero_bubble_h1_bubble(int stages, int micro_batches) {
  return (stages - 1.) / (3. * micro_batches + stages - 1.);
}

}  // namespace phx
