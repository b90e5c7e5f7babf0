// Layouts of context parallelism that combine more than two things at once, and settings of experts
// that the matrix (context_matrix.h) does not have: each against one rank, in fp64.
#include <gtest/gtest.h>

#include "phalanx/verify/parity.h"
#include "verify/context_matrix.h"

namespace phx {
namespace {

using namespace phx::testing;

struct LayoutCase {
  const char* name;
  int world;
  void (*set)(RunConfig& config);
};

void PrintTo(const LayoutCase& layout, std::ostream* out) { *out << layout.name; }

// Every axis but the data-parallel one: 8 ranks.
void all_axes(RunConfig& config) {
  ParallelConfig& ranks = config.parallel;
  ranks.tensor_model_parallel_size = ranks.pipeline_model_parallel_size = 2;
  ranks.context_parallel_size = 2;
  ranks.sequence_parallel = true;
  ranks.expert_model_parallel_size = 2;
}
void chunks(RunConfig& config) { config.parallel.num_virtual_stages_per_pipeline_rank = 2; }
void fully_sharded(RunConfig& config) { config.parallel.use_megatron_fsdp = true; }
void global_loss(RunConfig& config) {
  MoeConfig& moe = config.model.moe;
  moe.moe_router_enable_expert_bias = false;
  moe.moe_router_load_balancing_type = {"global_aux_loss"};
  moe.moe_aux_loss_coeff = {0.4};
}
void recomputed(RunConfig& config, std::vector<std::string> modules) {
  config.train.recompute_granularity = RecomputeGranularity::selective;
  config.train.recompute_modules = std::move(modules);
}

const LayoutCase kLayouts[] = {
    {"AllAxesWithZero1AndChunks", 16,
     [](RunConfig& c) {
       all_axes(c);
       chunks(c);
       c.parallel.use_distributed_optimizer = true;
       c.parallel.overlap_grad_reduce = c.parallel.overlap_param_gather = true;
       c.parallel.ddp_bucket_size = 1500;
     }},
    {"AllAxes", 8, [](RunConfig& c) { all_axes(c); }},
    {"AllAxesFullySharded", 16,
     [](RunConfig& c) {
       all_axes(c);
       fully_sharded(c);
     }},
    {"AllAxesFullyShardedInOneCopy", 8,
     [](RunConfig& c) {
       all_axes(c);
       chunks(c);
       fully_sharded(c);
     }},
    {"AllAxesWithHeadsExchanged", 16,
     [](RunConfig& c) {
       all_axes(c);
       c.parallel.cp_comm_type = {"a2a"};
       c.parallel.use_distributed_optimizer = true;
       recomputed(c, {"mlp", "moe"});
     }},
    {"ExpertsOverContextRanksWithAGlobalLoss", 8,
     [](RunConfig& c) {
       c.parallel.context_parallel_size = 4;
       c.parallel.expert_model_parallel_size = 4;
       global_loss(c);
     }},
    {"AGlobalLossOnAllAxes", 16,
     [](RunConfig& c) {
       all_axes(c);
       c.parallel.cp_comm_type = {"all_gather"};
       global_loss(c);
     }},
    {"ForcedBalance", 4,
     [](RunConfig& c) {
       c.parallel.context_parallel_size = 4;
       c.parallel.expert_model_parallel_size = 2;
       c.model.moe.moe_router_force_load_balancing = true;
     }},
    {"ForcedBalanceWithSequenceParallelRows", 4,
     [](RunConfig& c) {
       c.parallel.context_parallel_size = c.parallel.tensor_model_parallel_size = 2;
       c.parallel.sequence_parallel = true;
       // Chunks of nine tokens: other experts in turn than in the first chunk.
       c.model.seq_length = c.model.max_position_embeddings = 36;
       c.model.moe.moe_router_force_load_balancing = true;
     }},
};

class ContextLayouts : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(ContextLayouts, ComputeWhatOneRankComputes) {
  const LayoutCase& layout = GetParam();
  RunConfig config;
  context_experts(config);
  config.model.num_layers = 4;
  config.model.seq_length = config.model.max_position_embeddings = 48;
  config.model.attention_dropout = config.model.hidden_dropout = 0.1;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 8;
  layout.set(config);
  const LayoutRun run{.steps = 3};
  const Parity parity = compare(run_layout(config, layout.world, run),
                                run_layout(on_one_rank(config, layout.world), 1, run));
  EXPECT_EQ(parity.faults(), std::vector<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Layouts, ContextLayouts, ::testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace phx
