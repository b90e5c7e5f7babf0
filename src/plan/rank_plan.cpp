#include "phalanx/plan/rank_plan.h"

#include "phalanx/kernels/attention_use.h"
#include "phalanx/kernels/gemm_problem.h"

namespace phx {

namespace {

// Two equal steps are recorded, the third is replayed. With --overlap-grad-reduce and sharded
// gradients the first one is like no other: how often a parameter is used is learned in it, and in
// which order sharded weights are.
constexpr int kMostSteps = 5;

int num_groups(const Mesh& mesh) {
  const PipelineLinks links = mesh.links();
  int groups = 0;
  for (const Communicator* group :
       {mesh.world(), mesh.tp(), mesh.cp(), mesh.cp_inner(), mesh.cp_outer(), mesh.dp_cp(),
        mesh.key_sharers(), mesh.embedding(), mesh.expert_dp(), mesh.dispatch(), mesh.tp_cp(),
        links.forward_in, links.forward_out, links.backward_in, links.backward_out})
    if (group != nullptr) ++groups;
  for (const Grid grid : {Grid::dense, Grid::expert}) {
    if (mesh.shards(grid) != mesh.data(grid)) ++groups;
    if (mesh.shard_copies(grid) != nullptr) ++groups;
  }
  return groups;
}

}  // namespace

RankPlan plan_rank(const RunConfig& config, int world, int rank, const PlanOptions& options) {
  Runtime runtime({.kind = DeviceKind::meta,
                   .target = options.target,
                   .meta_bytes = options.device_bytes,
                   .deterministic = config.train.deterministic_mode});
  MetaWorld ranks(rank, world);
  const Mesh mesh(ranks, make_layout(config.layout(), world).mesh);
  RankPlan plan{.rank = rank, .groups = num_groups(mesh)};
  Session session(config, Sources::made_up(config), runtime.device(), mesh);
  plan.start = start_memory(session);
  for (int i = 0; i < kMostSteps && runtime.allocator().report().replayed_steps == 0; ++i) {
    ranks.reset_traffic();
    const Cost before = runtime.cost();
    session.train_batches.load(0);
    session.step.run(session.train_batches, {});
    session.step.forget();
    plan.cost = {.flops = runtime.cost().flops - before.flops,
                 .bytes = runtime.cost().bytes - before.bytes};
  }
  plan.memory = runtime.allocator().report();
  plan.host = host_memory(runtime);
  plan.traffic = ranks.traffic();
  for (const auto& line : runtime.extension<kernels::AttentionUse>().lines())
    plan.attention.push_back(line.text);
  plan.products = runtime.extension<kernels::GemmUse>().seen;
  plan.divergence = runtime.allocator().last_divergence();
  return plan;
}

}  // namespace phx
