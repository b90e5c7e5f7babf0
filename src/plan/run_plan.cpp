#include "phalanx/plan/run_plan.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "phalanx/base/error.h"

namespace phx {

namespace {

// The first rank of each stage.
std::vector<int> stage_ranks(const MeshOptions& mesh) {
  return RankGrid(mesh.sizes, mesh.order).group_of(0, "pp");
}

}  // namespace

int RunPlan::largest_stage() const {
  const auto taken = [](const RankPlan& plan) { return plan.memory.reserved; };
  return int(std::ranges::max_element(stages, {}, taken) - stages.begin());
}

double RunPlan::flops() const {
  double sum = 0;
  for (const RankPlan& plan : stages) sum += double(plan.cost.flops) * ranks_a_stage();
  return sum;
}

RunPlan plan_run(const RunConfig& config, int world, const PlanOptions& options,
                 const PlanProgress& progress) {
  RunPlan plan{.layout = make_layout(config.layout(), world)};
  plan.micro_batches = config.train.num_micro_batches(data_parallel_size(config.parallel, world));
  const std::vector<int> ranks = stage_ranks(plan.layout.mesh);
  const int stages = int(ranks.size());
  plan.stages.resize(ranks.size());
  std::mutex mutex;
  int done = 0;
  ThreadPool threads(std::clamp(int(std::thread::hardware_concurrency()), 1, stages));
  threads.parallel_for(stages, 1, [&](int64_t begin, int64_t end) {
    for (int64_t stage = begin; stage < end; ++stage) {
      plan.stages[size_t(stage)] = plan_rank(config, world, ranks[size_t(stage)], options);
      const std::lock_guard lock(mutex);
      if (progress) progress(++done, stages);
    }
  });
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
