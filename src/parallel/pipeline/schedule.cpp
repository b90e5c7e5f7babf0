#include "phalanx/parallel/pipeline/schedule.h"

#include <algorithm>
#include <functional>
#include <ostream>

#include "phalanx/base/error.h"

namespace phx {
namespace {

using Steps = std::vector<ScheduleStep>;

constexpr const char* kGroup = "--microbatch-group-size-per-virtual-pipeline-stage";
constexpr const char* kStages = "--pipeline-model-parallel-size";

// Of the group that micro-batch m passes the chunks with; the last group may be smaller.
int group_length(const ScheduleConfig& config, int m) {
  const int begin = m / config.group_size * config.group_size;
  return std::min(config.group_size, config.micro_batches - begin);
}

// How many forwards (backwards) before its use a message around the ring arrives: what the last
// rank sends reaches rank 0 after P steps, but rank 0 first passes its whole group through the
// chunk before. Such a receive is posted that much earlier, or the sender would have to keep the
// data.
int early_by(const ScheduleConfig& config, int rank, const ScheduleStep& step) {
  const bool around = step.kind == StepKind::forward ? rank == 0 : rank == config.stages - 1;
  if (!around || config.chunks == 1) return 0;
  return std::max(0, group_length(config, step.micro_batch) - config.stages);
}

bool has_input(const Schedule& schedule, int rank, const ScheduleStep& step) {
  if (step.kind == StepKind::forward) return !is_model_begin(rank, step.chunk);
  return step.kind == StepKind::backward && !is_model_end(schedule, rank, step.chunk);
}

bool has_output(const Schedule& schedule, int rank, const ScheduleStep& step) {
  if (step.kind == StepKind::forward) return !is_model_end(schedule, rank, step.chunk);
  return step.kind == StepKind::backward && !is_model_begin(rank, step.chunk);
}

// A rank's compute steps with their messages.
Steps with_messages(const ScheduleConfig& config, const Schedule& schedule, int rank,
                    const Steps& order) {
  std::vector<Steps> receives(order.size());  // before compute step i
  std::vector<size_t> of_kind[2];             // positions of forwards, of backwards
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i].kind == StepKind::weight_backward) continue;
    const bool forward = order[i].kind == StepKind::forward;
    std::vector<size_t>& positions = of_kind[forward ? 0 : 1];
    positions.push_back(i);
    if (!has_input(schedule, rank, order[i])) continue;
    const size_t early = early_by(config, rank, order[i]);
    const size_t use = positions[positions.size() - 1 - std::min(early, positions.size() - 1)];
    receives[use - std::min<size_t>(config.receive_ahead, use)].push_back(
        {forward ? StepKind::receive_forward : StepKind::receive_backward, order[i].micro_batch,
         order[i].chunk});
  }
  Steps steps;
  for (size_t i = 0; i < order.size(); ++i) {
    steps.insert(steps.end(), receives[i].begin(), receives[i].end());
    steps.push_back(order[i]);
    if (!has_output(schedule, rank, order[i])) continue;
    const bool forward = order[i].kind == StepKind::forward;
    steps.push_back({forward ? StepKind::send_forward : StepKind::send_backward,
                     order[i].micro_batch, order[i].chunk});
  }
  return steps;
}

void check_config(const ScheduleConfig& config, const std::string& name) {
  const auto check = [&](const char* what, int value, int least) {
    PHX_CHECK(value >= least, name, " schedule: ", what, " should be at least ", least,
              ", but it is ", value);
  };
  check("the number of stages", config.stages, 1);
  check("the number of chunks", config.chunks, 1);
  check("the number of micro-batches", config.micro_batches, 1);
  check("receive_ahead", config.receive_ahead, 0);
  PHX_CHECK(config.stages > 1 || config.chunks == 1, name,
            " schedule: one stage has one chunk, but ", config.chunks, " were given");
}

void check_one_chunk(const ScheduleConfig& config, const std::string& name) {
  check_config(config, name);
  PHX_CHECK(config.chunks == 1, name, " schedule: a rank has one chunk here, but ", config.chunks,
            " were given: interleave them");
}

ScheduleConfig with_default_group(ScheduleConfig config) {
  if (config.group_size == 0) config.group_size = config.stages;
  return config;
}

struct Entry {
  int micro_batch, chunk;
};

// In which order (micro-batch, chunk) pairs pass a rank forward.
std::vector<Entry> order_table(const ScheduleConfig& config) {
  std::vector<Entry> table;
  for (int begin = 0; begin < config.micro_batches; begin += config.group_size)
    for (int chunk = 0; chunk < config.chunks; ++chunk)
      for (int m = begin; m < begin + group_length(config, begin); ++m) table.push_back({m, chunk});
  return table;
}

// "8 and 12": the values next to `value` for which `good` holds.
std::string nearest(int value, int least, int most, const std::function<bool(int)>& good) {
  int below = std::min(value - 1, most), above = std::max(value + 1, least);
  while (below >= least && !good(below)) --below;
  while (above <= most && !good(above)) ++above;
  if (above > most) return below < least ? "" : str_cat(below);
  return below < least ? str_cat(above) : str_cat(below, " and ", above);
}

bool can_interleave(int stages, int micro_batches, int group_size) {
  if (group_size < stages || group_size > micro_batches) return false;
  const int rest = micro_batches % group_size;
  return rest == 0 || rest >= stages;
}

}  // namespace

Schedule schedule_of(const ScheduleConfig& config, std::string name,
                     const std::function<std::vector<ScheduleStep>(int rank)>& order_of) {
  Schedule schedule{.name = std::move(name),
                    .stages = config.stages,
                    .chunks = config.chunks,
                    .micro_batches = config.micro_batches,
                    .ranks = {}};
  for (int rank = 0; rank < config.stages; ++rank)
    schedule.ranks.push_back(with_messages(config, schedule, rank, order_of(rank)));
  return schedule;
}

const char* name(StepKind kind) {
  static constexpr const char* kNames[] = {"forward",         "backward",        "weight_backward",
                                           "send_forward",    "receive_forward", "send_backward",
                                           "receive_backward"};
  return kNames[static_cast<int>(kind)];
}

bool is_compute(StepKind kind) { return kind <= StepKind::weight_backward; }

std::ostream& operator<<(std::ostream& out, const ScheduleStep& step) {
  return out << name(step.kind) << " of micro-batch " << step.micro_batch << ", chunk "
             << step.chunk;
}

bool defers_weights(const Schedule& schedule) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const Steps& steps) {
    return std::any_of(steps.begin(), steps.end(),
                       [](auto& step) { return step.kind == StepKind::weight_backward; });
  });
}

bool is_model_begin(int rank, int chunk) { return rank == 0 && chunk == 0; }

bool is_model_end(const Schedule& schedule, int rank, int chunk) {
  return rank == schedule.stages - 1 && chunk == schedule.chunks - 1;
}

Schedule one_stage_schedule(int micro_batches) {
  const ScheduleConfig config{.micro_batches = micro_batches};
  check_config(config, "one-stage");
  return schedule_of(config, "one stage", [&](int) {
    Steps steps;
    for (int m = 0; m < micro_batches; ++m) {
      steps.push_back({StepKind::forward, m, 0});
      steps.push_back({StepKind::backward, m, 0});
    }
    return steps;
  });
}

Schedule one_f_one_b(const ScheduleConfig& config) {
  check_one_chunk(config, "1F1B");
  return schedule_of(config, "1F1B", [&](int rank) {
    const int warm_up = config.stages - rank - 1;
    Steps steps;
    for (int i = 0; i < config.micro_batches + warm_up; ++i) {
      if (i < config.micro_batches) steps.push_back({StepKind::forward, i, 0});
      if (i >= warm_up) steps.push_back({StepKind::backward, i - warm_up, 0});
    }
    return steps;
  });
}

Schedule interleaved_one_f_one_b(const ScheduleConfig& given) {
  check_config(given, "interleaved 1F1B");
  PHX_CHECK(given.chunks > 1,
            "interleaved 1F1B schedule: it needs several chunks, but there is one");
  for (const Problem& problem : interleaving_problems(given))
    throw Error(problem.text + "\n  hint: " + problem.hint);
  const ScheduleConfig config = with_default_group(given);
  const std::vector<Entry> table = order_table(config);
  return schedule_of(config, "interleaved 1F1B", [&](int rank) {
    const size_t warm_up = std::min<size_t>(
        2 * (config.stages - rank - 1) + (config.chunks - 1) * config.group_size, table.size());
    Steps steps;
    for (size_t i = 0; i < table.size() + warm_up; ++i) {
      if (i < table.size())
        steps.push_back({StepKind::forward, table[i].micro_batch, table[i].chunk});
      if (i < warm_up) continue;
      const Entry& entry = table[i - warm_up];
      steps.push_back({StepKind::backward, entry.micro_batch, config.chunks - 1 - entry.chunk});
    }
    return steps;
  });
}

Problems interleaving_problems(const ScheduleConfig& given) {
  const ScheduleConfig config = with_default_group(given);
  const int p = config.stages, m = config.micro_batches, g = config.group_size;
  if (can_interleave(p, m, g)) return {};
  Problem problem{.kind = ProblemKind::rule, .flag = kGroup, .text = {}, .hint = {}};
  if (m < p) {
    problem.text = str_cat(m, " micro-batches a step are too few to interleave over ", kStages, " ",
                           p, ": at least ", p, " are needed");
    problem.hint =
        str_cat("larger global batches, of ", p, " micro-batches a rank, or no virtual stages");
    return {problem};
  }
  if (g < p || g > m) {
    problem.text = str_cat(kGroup, " ", g, " should be from ", kStages, " ", p, " to the ", m,
                           " micro-batches of a step");
  } else {
    problem.text = str_cat(m, " micro-batches a step in groups of ", g, " (", kGroup,
                           ") leave a last group of ", m % g, ", fewer than ", kStages, " ", p);
  }
  const auto sizes = nearest(g, p, m, [&](int x) { return can_interleave(p, m, x); });
  const auto counts =
      nearest(m, std::max(p, g), m + g, [&](int x) { return can_interleave(p, x, g); });
  problem.hint = str_cat("groups of ", sizes, " would do");
  if (g >= p) problem.hint += str_cat(", or ", counts, " micro-batches a global batch");
  return {problem};
}

Schedule zero_bubble_h1(const ScheduleConfig& config) {
  check_one_chunk(config, "ZB-H1");
  return schedule_of(config, "ZB-H1", [&](int rank) {
    const int warm_up = config.stages - rank - 1;
    const int m = config.micro_batches;
    Steps steps;
    for (int i = 0; i < m + warm_up + rank; ++i) {
      const int b = i - warm_up, w = b - rank;
      if (i < m) steps.push_back({StepKind::forward, i, 0});
      if (b >= 0 && b < m) steps.push_back({StepKind::backward, b, 0});
      if (w >= 0 && w < m) steps.push_back({StepKind::weight_backward, w, 0});
    }
    return steps;
  });
}

Schedule forward_only(const ScheduleConfig& given) {
  check_config(given, "forward-only");
  const ScheduleConfig config = with_default_group(given);
  // Nothing waits for a backward here, so a last group of any size will do.
  const std::vector<Entry> table = order_table(config);
  return schedule_of(config, "forward only", [&](int) {
    Steps steps;
    for (const Entry& entry : table)
      steps.push_back({StepKind::forward, entry.micro_batch, entry.chunk});
    return steps;
  });
}

}  // namespace phx
