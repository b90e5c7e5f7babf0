// What the ranks of a data-parallel run take with each sharding strategy: planned, and measured on
// CPU ranks that are threads. The model that is measured is as large as the machine has room for
// with `no_shard`; one of 1.1 billion parameters is planned beside it.
//
//   bench_sharded_memory [LAYERS HIDDEN [RANKS]]    (14 768 8: 148 million parameters, 19 GiB)
//
// Exit code 1: a rank took another number of bytes than planned, of any purpose.
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "phalanx/base/format.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/plan/run_plan.h"
#include "phalanx/train/num_parameters.h"

namespace phx {
namespace {

constexpr Sharding kStrategies[] = {Sharding::no_shard, Sharding::optim, Sharding::optim_grads,
                                    Sharding::optim_grads_params};
constexpr int kMostSteps = 5;  // until the arena is in use

struct ModelSize {
  int64_t layers = 14, hidden = 768, ffn = 2048, heads = 12, groups = 12;
};
constexpr ModelSize kOneBillion{
    .layers = 22, .hidden = 2048, .ffn = 5632, .heads = 32, .groups = 4};

RunConfig llama(const ModelSize& size, int ranks, Sharding sharding) {
  RunConfig config;
  TransformerConfig& model = config.model;
  model.num_layers = size.layers;
  model.hidden_size = size.hidden;
  model.ffn_hidden_size = size.ffn;
  model.num_attention_heads = size.heads;
  model.group_query_attention = true;
  model.num_query_groups = size.groups;
  model.seq_length = model.max_position_embeddings = 64;
  model.vocab_size = 32000;
  model.position_embedding_type = PositionEmbedding::rope;
  model.normalization = Normalization::RMSNorm;
  model.swiglu = model.untie_embeddings_and_output_weights = true;
  model.add_bias_linear = false;
  model.attention_dropout = model.hidden_dropout = 0;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = ranks;
  config.train.train_iters = 1000;
  config.optim.lr = 1e-3;
  config.data.mock_data = true;
  config.parallel.use_megatron_fsdp = sharding != Sharding::no_shard;
  config.parallel.data_parallel_sharding_strategy = sharding;
  return config;
}

struct Measured {
  MemoryReport start, steps;
};

std::vector<Measured> measure(const RunConfig& config, int ranks) {
  const Layout layout = make_layout(config.layout(), ranks);
  const Sources sources(config);
  std::vector<Measured> measured{size_t(ranks)};
  run_thread_ranks(ranks, {}, [&](World& world) {
    Runtime runtime({.kind = DeviceKind::cpu, .threads = 1});
    const Mesh mesh(world, layout.mesh);
    Session session(config, sources, runtime.device(), mesh);
    Measured& own = measured[size_t(mesh.rank())];
    own.start = runtime.allocator().report();
    for (int i = 0; i < kMostSteps && runtime.allocator().report().replayed_steps == 0; ++i) {
      session.train_batches.load(int64_t{i} * ranks);
      session.step.run(session.train_batches, {.iteration = i + 1, .update = i + 1, .lr = 1e-3});
      session.step.collect();
    }
    own.steps = runtime.allocator().report();
  });
  return measured;
}

bool equal(const MemoryReport& a, const MemoryReport& b) {
  return a.live == b.live && a.at_peak == b.at_peak && a.peak == b.peak &&
         a.peak_total == b.peak_total && a.reserved == b.reserved &&
         a.peak_reserved == b.peak_reserved && a.arena == b.arena;
}

void row(const char* what, const MemoryReport& start, const MemoryReport& steps) {
  const auto at = [&](Purpose purpose) { return steps.at_peak[size_t(purpose)]; };
  const int64_t shown = at(Purpose::weights) + at(Purpose::gradients) + at(Purpose::optimizer) +
                        at(Purpose::activations);
  std::string line = fmt::format("  {:<20}", what);
  for (const int64_t bytes :
       {start.peak_total, at(Purpose::weights), at(Purpose::gradients), at(Purpose::optimizer),
        at(Purpose::activations), steps.peak_total - shown, steps.peak_total})
    line += fmt::format("{:>15}", format_thousands(bytes));
  fmt::print("{}\n", line);
}

void heading(const ModelSize& size, int ranks) {
  const RunConfig config = llama(size, ranks, Sharding::no_shard);
  fmt::print(
      "{} parameters in fp32 on {} ranks; bytes of rank 0 at the start and at a step's peak\n",
      format_thousands(num_parameters(config.family, config.model)), ranks);
  fmt::print("  {:<20}{:>15}{:>15}{:>15}{:>15}{:>15}{:>15}{:>15}\n", "", "start", "weights",
             "gradients", "optimizer", "activations", "other", "all");
}

// Whether every rank took what is planned for it.
bool plan_and_measure(const ModelSize& size, int ranks) {
  heading(size, ranks);
  bool same = true;
  for (const Sharding sharding : kStrategies) {
    const RunConfig config = llama(size, ranks, sharding);
    const std::vector<Measured> measured = measure(config, ranks);
    int equal_ranks = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const RankPlan plan = plan_rank(config, ranks, rank, {.target = DeviceKind::cpu});
      const Measured& own = measured[size_t(rank)];
      equal_ranks += int(equal(plan.start.device, own.start) && equal(plan.memory, own.steps));
      if (rank > 0) continue;
      fmt::print("  {}\n", option_names(Sharding{})[size_t(sharding)]);
      row("  planned", plan.start.device, plan.memory);
      row("  measured", own.start, own.steps);
    }
    fmt::print("    {} of {} ranks took what was planned for them, to the byte\n", equal_ranks,
               ranks);
    same = same && equal_ranks == ranks;
  }
  return same;
}

void plan_only(const ModelSize& size, int ranks) {
  heading(size, ranks);
  for (const Sharding sharding : kStrategies) {
    const RankPlan plan =
        plan_rank(llama(size, ranks, sharding), ranks, 0, {.target = DeviceKind::cpu});
    row(option_names(Sharding{})[size_t(sharding)], plan.start.device, plan.memory);
  }
}

int run(int argc, char** argv) {
  ModelSize size;
  if (argc > 2) {
    size.layers = std::atoll(argv[1]);
    size.hidden = std::atoll(argv[2]);
    size.ffn = size.hidden * 8 / 3 / 64 * 64;
    size.heads = size.groups = size.hidden / 64;
  }
  const int ranks = argc > 3 ? std::atoi(argv[3]) : 8;
  const bool same = plan_and_measure(size, ranks);
  plan_only(kOneBillion, ranks);
  return same ? 0 : 1;
}

}  // namespace
}  // namespace phx

int main(int argc, char** argv) { return phx::run(argc, argv); }
