// What is planned is what runs: every rank of many layouts, on CPU ranks that are threads, takes
// exactly the memory of its stage's plan, purpose by purpose.
#include "phalanx/plan/rank_plan.h"

#include <gtest/gtest.h>

#include <numeric>

#include "phalanx/comm/thread_world.h"
#include "phalanx/plan/run_plan.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

struct LayoutCase {
  const char* name;
  int world;
  void (*set)(RunConfig& config);
};

void PrintTo(const LayoutCase& layout, std::ostream* out) { *out << layout.name; }

RunConfig run_of(const LayoutCase& layout) {
  RunConfig config = tiny_run();
  config.model.num_layers = 4;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 8;
  layout.set(config);
  return config;
}

struct RankMemory {
  StartMemory start;
  MemoryReport device;
  HostMemory host;
};

// The reports of CPU ranks after five steps, the last of them replayed.
std::vector<RankMemory> reports_of_ranks(const RunConfig& config, int world) {
  const Layout layout = make_layout(config.layout(), world);
  const Sources sources(config);
  std::vector<RankMemory> reports(static_cast<size_t>(world));
  run_thread_ranks(world, {}, [&](World& ranks) {
    Runtime runtime({.kind = DeviceKind::cpu, .threads = 2});
    const Mesh mesh(ranks, layout.mesh);
    Session session(config, sources, runtime.device(), mesh);
    const StartMemory start = start_memory(session);
    for (int64_t i = 0; i < 5; ++i) {
      session.train_batches.load(i * 8);
      session.step.run(session.train_batches, {.iteration = i + 1, .update = i + 1, .lr = 1e-3});
      session.step.collect();
    }
    reports[size_t(mesh.rank())] = {start, runtime.allocator().report(), host_memory(runtime)};
  });
  return reports;
}

// In the steady step.
void expect_same(const MemoryReport& real, const MemoryReport& planned) {
  for (int i = 0; i < kNumPurposes; ++i) {
    const char* purpose = name(static_cast<Purpose>(i));
    EXPECT_EQ(real.at_peak[i], planned.at_peak[i]) << "at the peak, " << purpose;
    EXPECT_EQ(real.live[i], planned.live[i]) << "kept, " << purpose;
  }
  EXPECT_EQ(real.peak_total, planned.peak_total);
  EXPECT_EQ(real.arena, planned.arena);
  EXPECT_EQ(real.reserved, planned.reserved);
  EXPECT_EQ(real.diverged_steps, 0);
}

// Before the first step.
void expect_same_start(const StartMemory& real, const StartMemory& planned) {
  SCOPED_TRACE("start");
  expect_same(real.device, planned.device);
  EXPECT_EQ(real.device.peak_reserved, planned.device.peak_reserved);
  EXPECT_EQ(real.device.peak_total,
            std::accumulate(planned.device.live.begin(), planned.device.live.end(), int64_t{0}))
      << "something was there at the start that is not kept";
  expect_same(real.host.plain, planned.host.plain);
  expect_same(real.host.pinned, planned.host.pinned);
}

bool uses_host(const RunConfig& config) {
  return config.optim.optimizer_cpu_offload || config.train.cpu_offloading_num_layers > 0;
}

class PlanOfLayout : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(PlanOfLayout, IsWhatEveryCpuRankTakesToTheByte) {
  const LayoutCase& layout = GetParam();
  const RunConfig config = run_of(layout);
  const std::vector<RankMemory> real = reports_of_ranks(config, layout.world);
  const RunPlan plan = plan_run(config, layout.world, {.target = DeviceKind::cpu});
  const RankGrid grid(plan.layout.mesh.sizes, plan.layout.mesh.order);
  for (int rank = 0; rank < layout.world; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const MemoryReport& of_stage = plan.stages[size_t(grid.index(rank, "pp"))].memory;
    const MemoryReport& report = real[size_t(rank)].device;
    expect_same(report, of_stage);
    EXPECT_EQ(of_stage.arena > 0, config.train.arena);
    expect_same(real[size_t(rank)].start.device,
                plan.stages[size_t(grid.index(rank, "pp"))].start.device);
    // Its own plan also tells how each purpose peaked by itself, and of the first steps.
    const RankPlan own = plan_rank(config, layout.world, rank, {.target = DeviceKind::cpu});
    expect_same(report, own.memory);
    expect_same_start(real[size_t(rank)].start, own.start);
    EXPECT_EQ(report.peak, own.memory.peak);
    EXPECT_EQ(report.peak_reserved, own.memory.peak_reserved);
    const HostMemory& host = real[size_t(rank)].host;
    EXPECT_EQ(host.reserved() > 0, uses_host(config));
    expect_same(host.plain, own.host.plain);
    expect_same(host.pinned, own.host.pinned);
  }
}

TEST_P(PlanOfLayout, IsOneForAllGpusOfAStage) {
  const LayoutCase& layout = GetParam();
  RunConfig config = run_of(layout);
  config.train.fp64 = false;  // no GPU kernel computes in doubles
  const RunPlan plan = plan_run(config, layout.world, {});
  const RankGrid grid(plan.layout.mesh.sizes, plan.layout.mesh.order);
  for (int rank = 0; rank < layout.world; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const MemoryReport& of_stage = plan.stages[size_t(grid.index(rank, "pp"))].memory;
    const MemoryReport own = plan_rank(config, layout.world, rank, {}).memory;
    expect_same(own, of_stage);
    EXPECT_EQ(own.peak, of_stage.peak);
    EXPECT_EQ(own.peak_reserved, of_stage.peak_reserved);
  }
}

void tp(RunConfig& c, int64_t size) { c.parallel.tensor_model_parallel_size = size; }
void pp(RunConfig& c, int64_t size) { c.parallel.pipeline_model_parallel_size = size; }
void sharded(RunConfig& c) { c.parallel.use_distributed_optimizer = true; }
void overlapped(RunConfig& c) {
  sharded(c);
  c.parallel.overlap_grad_reduce = c.parallel.overlap_param_gather = true;
  c.parallel.ddp_bucket_size = 3000;
}
void fully_sharded(RunConfig& c, Sharding sharding = Sharding::optim_grads_params) {
  c.parallel.use_megatron_fsdp = true;
  c.parallel.data_parallel_sharding_strategy = sharding;
}
void recomputed(RunConfig& c, RecomputeMethod method, int64_t layers) {
  c.train.recompute_granularity = RecomputeGranularity::full;
  c.train.recompute_method = method;
  c.train.recompute_num_layers = layers;
}
void recomputed(RunConfig& c, std::vector<std::string> modules) {
  c.train.recompute_granularity = RecomputeGranularity::selective;
  c.train.recompute_modules = std::move(modules);
}
void gpt2(RunConfig& c) {
  c.model.position_embedding_type = PositionEmbedding::learned_absolute;
  c.model.normalization = Normalization::LayerNorm;
  c.model.swiglu = c.model.qk_layernorm = false;
  c.model.add_bias_linear = true;
}

void narrow(RunConfig& c) {
  c.train.bf16 = c.optim.use_precision_aware_optimizer = true;
  c.optim.main_grads_dtype = c.optim.exp_avg_dtype = c.optim.exp_avg_sq_dtype = StateDType::bf16;
}
void offloaded(RunConfig& c, double fraction) {
  c.optim.use_precision_aware_optimizer = c.optim.optimizer_cpu_offload = true;
  c.optim.optimizer_offload_fraction = fraction;
  c.optim.overlap_cpu_optimizer_d2h_h2d = true;
  c.optim.optimizer_offload_chunk = 1000;
}

void experts(RunConfig& c, int64_t ep, std::optional<int64_t> etp = {}) {
  c.model.add_bias_linear = false;
  c.model.moe.num_experts = 4;
  c.model.moe.moe_ffn_hidden_size = 24;
  c.model.moe.moe_aux_loss_coeff = {0.1};
  c.model.moe.moe_z_loss_coeff = 0.1;
  c.parallel.expert_model_parallel_size = ep;
  c.parallel.expert_tensor_parallel_size = etp;
}
// Rows that all go to one rank would not fit.
void sent_with_little_room(RunConfig& c) {
  c.model.moe.moe_token_dispatcher_type = TokenDispatcherType::alltoall;
  c.model.moe.moe_expert_rank_capacity_factor = 1.75;
}
void sequence_parallel(RunConfig& c) {
  tp(c, 2);
  c.parallel.sequence_parallel = true;
}

// GPUs have attention dropout only where all heads are exchanged.
void cp(RunConfig& c, int64_t size, std::vector<std::string> comms,
        std::vector<int64_t> sizes = {}) {
  c.parallel.context_parallel_size = size;
  c.parallel.cp_comm_type = std::move(comms);
  c.parallel.hierarchical_context_parallel_sizes = std::move(sizes);
  c.model.attention_dropout = 0;
}

const LayoutCase kLayouts[] = {
    {"OneRank", 1, [](RunConfig&) {}},
    {"OneRankWithoutArena", 1, [](RunConfig& c) { c.train.arena = false; }},
    {"TensorParallel", 2, [](RunConfig& c) { tp(c, 2); }},
    {"TensorParallelGpt2", 2,
     [](RunConfig& c) {
       tp(c, 2);
       gpt2(c);
     }},
    {"SequenceParallelBf16", 2,
     [](RunConfig& c) {
       tp(c, 2);
       c.parallel.sequence_parallel = c.train.bf16 = true;
     }},
    {"MoreTensorRanksThanKeyGroups", 4,
     [](RunConfig& c) {
       tp(c, 4);
       c.parallel.sequence_parallel = true;
     }},
    {"TensorParallelOverlapped", 2,
     [](RunConfig& c) {
       tp(c, 2);
       c.parallel.sequence_parallel = c.parallel.tp_comm_overlap = c.train.bf16 = true;
     }},
    {"Pipeline", 2, [](RunConfig& c) { pp(c, 2); }},
    {"PipelineUntiedBf16", 4,
     [](RunConfig& c) {
       pp(c, 4);
       c.train.bf16 = c.model.untie_embeddings_and_output_weights = true;
     }},
    {"TokensAheadBesideTheLoss", 4,
     [](RunConfig& c) {
       pp(c, 2);
       tp(c, 2);
       c.parallel.sequence_parallel = true;
       c.model.mtp_num_layers = 2;
     }},
    {"TokensAheadOnAStageOfTheirOwn", 4,
     [](RunConfig& c) {
       pp(c, 4);
       c.model.mtp_num_layers = 1;
       c.model.position_embedding_type = PositionEmbedding::rope;
       c.model.untie_embeddings_and_output_weights = true;
       c.parallel.pipeline_model_parallel_layout =
           "E" + std::string(size_t(c.model.num_layers - 1), 't') + "|t|m|L";
     }},
    {"PipelineWithoutReceivesAhead", 2,
     [](RunConfig& c) {
       pp(c, 2);
       c.parallel.overlap_p2p_communication = false;
     }},
    {"Interleaved", 2,
     [](RunConfig& c) {
       pp(c, 2);
       c.parallel.num_virtual_stages_per_pipeline_rank = 2;
     }},
    {"ZeroBubble", 4,
     [](RunConfig& c) {
       pp(c, 4);
       c.parallel.pipeline_schedule = "zb-h1";
     }},
    {"DataParallel", 2, [](RunConfig&) {}},
    {"DataParallelBf16Gradients", 2,
     [](RunConfig& c) { c.train.bf16 = c.parallel.grad_reduce_in_bf16 = true; }},
    {"ShardedOptimizerBf16", 4,
     [](RunConfig& c) {
       sharded(c);
       c.train.bf16 = true;
     }},
    {"ShardedOptimizerFp16", 2,
     [](RunConfig& c) {
       sharded(c);
       c.train.fp16 = true;
     }},
    {"Overlapped", 2, overlapped},
    {"TensorAndDataParallelSharded", 4,
     [](RunConfig& c) {
       tp(c, 2);
       sharded(c);
       c.parallel.sequence_parallel = true;
     }},
    {"AllAxesOverlapped", 8,
     [](RunConfig& c) {
       tp(c, 2);
       pp(c, 2);
       overlapped(c);
       c.parallel.sequence_parallel = true;
     }},
    {"AllAxesInTheOtherOrder", 8,
     [](RunConfig& c) {
       tp(c, 2);
       pp(c, 2);
       sharded(c);
       c.parallel.use_tp_pp_dp_mapping = c.model.untie_embeddings_and_output_weights = true;
     }},
    {"RecomputedUniformly", 4,
     [](RunConfig& c) {
       tp(c, 2);
       pp(c, 2);
       recomputed(c, RecomputeMethod::uniform, 1);
     }},
    {"RecomputedByBlocks", 2,
     [](RunConfig& c) {
       pp(c, 2);
       recomputed(c, RecomputeMethod::block, 1);
     }},
    {"RecomputedAttentionAndMlp", 4,
     [](RunConfig& c) {
       tp(c, 2);
       c.parallel.sequence_parallel = true;
       recomputed(c, {"core_attn", "mlp"});
     }},
    {"NarrowStates", 1, narrow},
    {"NarrowStatesSharded", 2,
     [](RunConfig& c) {
       narrow(c);
       overlapped(c);
     }},
    {"OffloadedOptimizer", 1, [](RunConfig& c) { offloaded(c, 1); }},
    {"HalfOffloadedOptimizerSharded", 4,
     [](RunConfig& c) {
       narrow(c);
       tp(c, 2);
       sharded(c);
       offloaded(c, 0.5);
     }},
    {"OffloadedActivations", 2,
     [](RunConfig& c) {
       tp(c, 2);
       c.parallel.sequence_parallel = true;
       c.train.cpu_offloading_num_layers = 2;
     }},
    {"Experts", 1, [](RunConfig& c) { experts(c, 1); }},
    {"ExpertsGathered", 2, [](RunConfig& c) { experts(c, 2); }},
    {"ExpertsSentWithLittleRoomBf16", 2,
     [](RunConfig& c) {
       experts(c, 2);
       sent_with_little_room(c);
       c.train.bf16 = true;
     }},
    {"ExpertsSentWithRoomForTheWorstCase", 4,
     [](RunConfig& c) {
       experts(c, 4);
       c.model.moe.moe_token_dispatcher_type = TokenDispatcherType::alltoall;
       sharded(c);
     }},
    {"ExpertsCutOtherwiseThanDenseLayers", 4,
     [](RunConfig& c) {
       experts(c, 2, 1);
       sequence_parallel(c);
       sent_with_little_room(c);
       sharded(c);
     }},
    {"ExpertsCutOverTensorRanksInAPipeline", 8,
     [](RunConfig& c) {
       experts(c, 2, 2);
       sequence_parallel(c);
       pp(c, 2);
       recomputed(c, {"moe_act", "layernorm"});
     }},
    {"ExpertsWithBiasAndGlobalLoss", 4,
     [](RunConfig& c) {
       experts(c, 2);
       sequence_parallel(c);
       MoeConfig& moe = c.model.moe;
       moe.moe_router_score_function = RouterScoreFunction::sigmoid;
       moe.moe_router_enable_expert_bias = true;
       moe.moe_router_load_balancing_type = {"global_aux_loss"};
       moe.moe_shared_expert_intermediate_size = 24;
     }},
    {"ExpertsWithACapacity", 4,
     [](RunConfig& c) {
       experts(c, 2, 1);
       sequence_parallel(c);
       c.model.moe.moe_expert_capacity_factor = 1.0;
       recomputed(c, {"moe"});
     }},
    {"Fp64", 4,
     [](RunConfig& c) {
       tp(c, 2);
       c.train.fp64 = true;
     }},
    {"ShardedGradients", 2, [](RunConfig& c) { fully_sharded(c, Sharding::optim_grads); }},
    {"ShardedWeights", 2, [](RunConfig& c) { fully_sharded(c); }},
    {"ShardedWeightsBf16", 4,
     [](RunConfig& c) {
       fully_sharded(c);
       c.train.bf16 = c.model.untie_embeddings_and_output_weights = true;
     }},
    {"ShardedWeightsSeveralUnitsAhead", 2,
     [](RunConfig& c) {
       fully_sharded(c);
       c.parallel.suggested_communication_unit_size = 1'000'000;
     }},
    {"ShardedWeightsKept", 2,
     [](RunConfig& c) {
       fully_sharded(c);
       c.parallel.torch_fsdp2_no_reshard_after_forward = true;
     }},
    {"ShardedWeightsRecomputed", 2,
     [](RunConfig& c) {
       fully_sharded(c);
       recomputed(c, RecomputeMethod::uniform, 2);
     }},
    {"ShardedWeightsRecomputedInParts", 4,
     [](RunConfig& c) {
       fully_sharded(c);
       sequence_parallel(c);
       recomputed(c, {"core_attn", "layernorm"});
     }},
    {"ShardedWeightsInAPipeline", 4,
     [](RunConfig& c) {
       fully_sharded(c);
       pp(c, 2);
     }},
    {"ShardedWeightsInterleaved", 8,
     [](RunConfig& c) {
       fully_sharded(c);
       sequence_parallel(c);
       pp(c, 2);
       c.parallel.num_virtual_stages_per_pipeline_rank = 2;
     }},
    {"ShardedWeightsZeroBubble", 4,
     [](RunConfig& c) {
       fully_sharded(c);
       pp(c, 2);
       c.parallel.pipeline_schedule = "zb-h1";
     }},
    {"ShardedWeightsInTwoCopies", 4,
     [](RunConfig& c) {
       fully_sharded(c);
       c.parallel.num_distributed_optimizer_instances = 2;
     }},
    {"ShardedWeightsInTwoCopiesWithOwners", 4,
     [](RunConfig& c) {
       fully_sharded(c);
       c.train.bf16 = true;
       c.parallel.num_distributed_optimizer_instances = 2;
       c.parallel.outer_dp_sharding_strategy = OuterSharding::optim;
     }},
    {"ShardedExperts", 4,
     [](RunConfig& c) {
       fully_sharded(c);
       experts(c, 2);
       sent_with_little_room(c);
     }},
    {"AttentionKeptAndMlpInPieces", 4,
     [](RunConfig& c) {
       sequence_parallel(c);
       recomputed(c, RecomputeMethod::uniform, 1);
       c.train.recompute_keep_attention = true;
       c.train.mlp_chunks_for_training = 3;
     }},
    {"MlpInPiecesZeroBubble", 4,
     [](RunConfig& c) {
       pp(c, 2);
       c.parallel.pipeline_schedule = "zb-h1";
       c.train.mlp_chunks_for_training = 4;
     }},
    {"ContextParallelRing", 2, [](RunConfig& c) { cp(c, 2, {"p2p"}); }},
    {"ContextParallelRingOfFourBf16", 4,
     [](RunConfig& c) {
       cp(c, 4, {"p2p"});
       c.train.bf16 = true;
     }},
    {"ContextParallelExchangedHeads", 2,
     [](RunConfig& c) {
       cp(c, 2, {"a2a"});
       c.model.attention_dropout = 0.1;
     }},
    {"ContextParallelBoth", 4,
     [](RunConfig& c) {
       cp(c, 4, {"a2a+p2p"}, {2, 2});
     }},
    {"ContextParallelOnAllAxes", 16,
     [](RunConfig& c) {
       cp(c, 2, {"p2p"});
       sequence_parallel(c);
       pp(c, 2);
       overlapped(c);
     }},
    {"ContextParallelExpertsAhead", 4,
     [](RunConfig& c) {
       cp(c, 2, {"p2p"});
       experts(c, 2);
       c.model.mtp_num_layers = 1;
       recomputed(c, {"core_attn"});
     }},
    {"ContextParallelShardedWeights", 4,
     [](RunConfig& c) {
       cp(c, 2, {"p2p"});
       fully_sharded(c);
     }},
    {"ShardedWeightsOffloadedOptimizer", 2,
     [](RunConfig& c) {
       fully_sharded(c);
       offloaded(c, 0.5);
     }},
    {"FrozenParts", 4,
     [](RunConfig& c) {
       sequence_parallel(c);
       sharded(c);
       c.train.bf16 = true;
       c.train.freeze_modules = {"mlp", "embedding"};
     }},
    {"FrozenStage", 2,
     [](RunConfig& c) {
       pp(c, 2);
       c.model.untie_embeddings_and_output_weights = true;
       c.train.freeze_modules = {"embedding", "decoder.layers.0", "decoder.layers.1"};
     }},
    {"FrozenPartsShardedWeights", 2,
     [](RunConfig& c) {
       fully_sharded(c);
       c.train.freeze_modules = {"self_attention"};
     }},
};

// Two stages of four context-parallel ranks that do not take the same, with wide heads, so that
// attention is where they take most.
void expect_the_largest_planned(const std::vector<std::string>& comms,
                                std::optional<WindowSize> window, int largest) {
  RunConfig config = run_of({"unlike", 8, [](RunConfig& c) { pp(c, 2); }});
  cp(config, 4, comms);
  config.model.seq_length = config.model.max_position_embeddings = 192;
  config.model.kv_channels = 64;
  config.model.window_size = window;
  const RunPlan plan = plan_run(config, 8, {.target = DeviceKind::cpu});
  const std::vector<RankMemory> real = reports_of_ranks(config, 8);
  const RankGrid grid(plan.layout.mesh.sizes, plan.layout.mesh.order);
  double flops = 0;
  for (int rank = 0; rank < 8; ++rank) {
    const RankPlan& of_stage = plan.stages[size_t(grid.index(rank, "pp"))];
    EXPECT_EQ(grid.index(of_stage.rank, "cp"), largest);
    const int64_t reserved = real[size_t(rank)].device.reserved, planned = of_stage.memory.reserved;
    const int cp_rank = grid.index(rank, "cp");
    EXPECT_LE(reserved, planned);
    if (cp_rank == largest) {
      EXPECT_EQ(reserved, planned);
    }
    if (cp_rank == 3) {
      EXPECT_LT(reserved, planned);
    }
    flops += double(plan_rank(config, 8, rank, {.target = DeviceKind::cpu}).cost.flops);
  }
  EXPECT_NEAR(plan.flops() / flops, 1, 1e-3) << "sums of gradients are not equally long";
}

TEST(RankPlan, WithAWindowARankInsideOfTheSequenceBringsMostAndIsPlanned) {
  expect_the_largest_planned({"p2p"}, WindowSize{20, 0}, 1);
}

TEST(RankPlan, OfGatheredKeysTheFirstRankHasTheLongestGradient) {
  expect_the_largest_planned({"all_gather"}, {}, 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PlanOfLayout, ::testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace phx
