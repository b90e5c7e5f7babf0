#include "phalanx/plan/run_plan.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/plan/context_kinds.h"

namespace phx {

namespace {

// Ranks that are alike: the first of them, and their share of the stage's.
struct PlannedRank {
  int stage = 0, rank = 0;
  double share = 1;
};

std::vector<PlannedRank> ranks_to_plan(const RunConfig& config, const MeshOptions& mesh) {
  const RankGrid grid(mesh.sizes, mesh.order);
  const std::vector<int> first = grid.group_of(0, "pp");  // of each stage
  std::vector<PlannedRank> ranks;
  for (size_t stage = 0; stage < first.size(); ++stage) {
    const std::vector<int> sharers = grid.group_of(first[stage], "cp");
    for (const ContextKind& kind : context_kinds(config.model, config.parallel))
      ranks.push_back({.stage = int(stage),
                       .rank = sharers.at(size_t(kind.rank)),
                       .share = double(kind.count) / double(sharers.size())});
  }
  return ranks;
}

// Where they take equally much the first one stays.
bool takes_more(const RankPlan& a, const RankPlan& b) {
  return std::pair(a.memory.reserved, a.memory.peak_reserved) >
         std::pair(b.memory.reserved, b.memory.peak_reserved);
}

}  // namespace

int RunPlan::largest_stage() const {
  const auto taken = [](const RankPlan& plan) { return plan.memory.reserved; };
  return int(std::ranges::max_element(stages, {}, taken) - stages.begin());
}

double RunPlan::flops() const {
  double sum = 0;
  for (const double mean : mean_flops) sum += mean * ranks_a_stage();
  return sum;
}

RunPlan plan_run(const RunConfig& config, int world, const PlanOptions& options,
                 const PlanProgress& progress) {
  RunPlan plan{.layout = make_layout(config.layout(), world)};
  plan.micro_batches = config.train.num_micro_batches(data_parallel_size(config.parallel, world));
  const std::vector<PlannedRank> ranks = ranks_to_plan(config, plan.layout.mesh);
  const int all = int(ranks.size());
  std::vector<RankPlan> plans(ranks.size());
  std::mutex mutex;
  int done = 0;
  ThreadPool threads(std::clamp(int(std::thread::hardware_concurrency()), 1, all));
  threads.parallel_for(all, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      plans[size_t(i)] = plan_rank(config, world, ranks[size_t(i)].rank, options);
      const std::lock_guard lock(mutex);
      if (progress) progress(++done, all);
    }
  });
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto stage = size_t(ranks[i].stage);
    const double flops = ranks[i].share * double(plans[i].cost.flops);
    if (stage == plan.stages.size()) {
      plan.stages.push_back(std::move(plans[i]));
      plan.mean_flops.push_back(flops);
      continue;
    }
    plan.mean_flops[stage] += flops;
    if (takes_more(plans[i], plan.stages[stage])) plan.stages[stage] = std::move(plans[i]);
  }
  return plan;
}

Fit fit(const RunConfig& config, const RunPlan& plan, DeviceKind target, int64_t device_bytes) {
  std::vector<int> order(plan.stages.size());  // the largest first
  std::iota(order.begin(), order.end(), 0);
  const auto memory = [&](int stage) -> const MemoryReport& {
    return plan.stages[size_t(stage)].memory;
  };
  std::ranges::stable_sort(order, std::greater(), [&](int i) { return memory(i).reserved; });
  Fit fit{.stage = order[0]};
  for (const int stage : order) {
    if (memory(stage).peak_reserved <= device_bytes) continue;
    try {
      const RankPlan squeezed =
          plan_rank(config, plan.layout.mesh.sizes.world(), plan.stages[size_t(stage)].rank,
                    {.target = target, .device_bytes = device_bytes});
      fit.early_steps_tight = true;
      if (!squeezed.divergence.empty()) fit.stays_with_cache = squeezed.divergence;
    } catch (const OutOfMemory&) {
      return {.fits = false, .stage = stage};
    }
  }
  return fit;
}

LibraryMemory library_memory(const RankPlan& plan, DeviceKind target) {
  if (target != DeviceKind::cuda) return {};
  constexpr int64_t kMiB = int64_t{1} << 20;
  return {.context = 1024 * kMiB, .groups = plan.groups * 512 * kMiB};
}

}  // namespace phx
