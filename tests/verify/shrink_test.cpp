#include "phalanx/verify/shrink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/verify/parity.h"
#include "phalanx/verify/proof_text.h"
#include "verify/context_matrix.h"
#include "verify/expert_matrix.h"
#include "verify/large_run.h"
#include "verify/parity_matrix.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::Contains;

TEST(Shrink, KeepsEveryAxisAndSaysWhatItShrank) {
  const SmallRun small = shrink(large_run(), kWorld);
  expect_valid(small, "large");
  EXPECT_EQ(small.world, 16);
  EXPECT_EQ(small.config.parallel.tensor_model_parallel_size, 2);
  EXPECT_EQ(small.config.parallel.pipeline_model_parallel_size, 4);
  EXPECT_TRUE(small.config.parallel.sequence_parallel);
  EXPECT_TRUE(small.config.train.fp64);
  EXPECT_FALSE(small.config.train.bf16);
  EXPECT_EQ(small.config.optim.exp_avg_sq_dtype, StateDType::fp32);
  for (const char* change :
       {"TP 8 -> 2", "PP 8 -> 4", "DP 32 -> 2", "layers 80 -> 4", "heads 64 -> 4",
        "query groups 8 -> 2", "vocabulary 128256 -> 53", "micro-batches a step and rank 64 -> 6"})
    EXPECT_THAT(small.changes, Contains(change));
}

TEST(Shrink, LatentAttentionStaysLatent) {
  RunConfig config = large_run();
  config.model.group_query_attention = false;
  config.model.qk_layernorm = true;
  config.model.latent = {.multi_latent_attention = true,
                         .q_lora_rank = 1536,
                         .kv_lora_rank = 512,
                         .qk_head_dim = 128,
                         .qk_pos_emb_head_dim = 64,
                         .v_head_dim = 128,
                         .rope_type = {}};
  const SmallRun small = shrink(config, kWorld);
  expect_valid(small, "latent");
  EXPECT_TRUE(small.config.model.latent.q_lora_rank.has_value());
  EXPECT_LT(small.config.model.value_dim(), small.config.model.head_dim());
  EXPECT_THAT(small.changes, Contains("latent width 512 -> 12"));
  const Sources sources(small.config);
  const LayoutOutcome many = run_layout(small.config, sources, small.world, {.steps = 2});
  const LayoutOutcome one =
      run_layout(on_one_rank(small.config, small.world), sources, 1, {.steps = 2});
  EXPECT_EQ(compare(many, one).faults(), std::vector<std::string>{});
}

TEST(Shrink, KeepsTensorParallelRanksWhereThereIsRoom) {
  RunConfig config = large_run();
  config.parallel.pipeline_model_parallel_size = 1;
  EXPECT_EQ(shrink(config, 8 * 32).config.parallel.tensor_model_parallel_size, 4);
  config.parallel.tensor_model_parallel_size = 7;
  config.model.num_attention_heads = config.model.num_query_groups = 56;
  config.model.ffn_hidden_size = 28672;
  config.model.seq_length = 7168;
  const SmallRun seven = shrink(config, 7 * 32);
  EXPECT_EQ(seven.config.parallel.tensor_model_parallel_size, 7);
  EXPECT_EQ(seven.world, 14);
  expect_valid(seven, "seven");
}

TEST(Shrink, RanksThatShareAKeyGroupStillDo) {
  RunConfig config = large_run();
  config.parallel.pipeline_model_parallel_size = 2;
  for (const int64_t groups : {1, 2, 4}) {
    config.model.num_query_groups = groups;
    const SmallRun small = shrink(config, 16);
    expect_valid(small, std::to_string(groups));
    EXPECT_LT(small.config.model.query_groups(), small.config.parallel.tensor_model_parallel_size);
    EXPECT_EQ(make_layout(small.config.layout(), small.world).mesh.key_sharers,
              groups == 1 ? 4 : 2);
  }
  config.model.num_query_groups = 32;
  const SmallRun several = shrink(config, 16);
  EXPECT_EQ(several.config.model.query_groups(),
            2 * several.config.parallel.tensor_model_parallel_size);
}

TEST(Shrink, GroupsOfInterleavedMicroBatches) {
  RunConfig config = large_run();
  config.parallel.num_virtual_stages_per_pipeline_rank = 2;
  const auto small = [&](int64_t micro_batches, std::optional<int64_t> group) {
    config.train.global_batch_size = micro_batches * 32;
    config.parallel.microbatch_group_size_per_virtual_pipeline_stage = group;
    const SmallRun run = shrink(config, kWorld);
    expect_valid(run, std::to_string(micro_batches));
    return std::pair(run.config.train.num_micro_batches(2),
                     run.config.parallel.microbatch_group_size_per_virtual_pipeline_stage);
  };
  EXPECT_EQ(small(8, {}), std::pair(int64_t{4}, std::optional<int64_t>{}));
  EXPECT_EQ(small(64, {}), std::pair(int64_t{8}, std::optional<int64_t>{}));
  EXPECT_EQ(small(64, 16), std::pair(int64_t{10}, std::optional<int64_t>{5}));
  EXPECT_EQ(small(26, 16), std::pair(int64_t{9}, std::optional<int64_t>{5}));
}

// A mixture of 64 experts on TP 8 x DP 32, without a pipeline.
RunConfig large_experts() {
  RunConfig config = large_run();
  config.parallel.pipeline_model_parallel_size = 1;
  config.model.moe.num_experts = 64;
  config.model.moe.moe_ffn_hidden_size = 2048;
  return config;
}

constexpr int64_t kExpertWorld = 256;

TEST(Shrink, KeepsHowExpertsAreCutBesideDenseLayers) {
  const auto ranks = [](int64_t tp, int64_t ep, std::optional<int64_t> etp) {
    RunConfig config = large_experts();
    config.parallel.tensor_model_parallel_size = tp;
    config.parallel.sequence_parallel = tp > 1;
    config.parallel.expert_model_parallel_size = ep;
    config.parallel.expert_tensor_parallel_size = etp;
    const SmallRun small = shrink(config, kExpertWorld);
    expect_valid(small, "experts");
    const ParallelConfig& p = small.config.parallel;
    return std::tuple(p.tensor_model_parallel_size, p.expert_model_parallel_size,
                      expert_tensor_ranks(p));
  };
  EXPECT_EQ(ranks(8, 8, {}), std::tuple(4, 2, 4));
  EXPECT_EQ(ranks(8, 32, 1), std::tuple(4, 2, 1));
  EXPECT_EQ(ranks(8, 16, 2), std::tuple(4, 2, 2));
  EXPECT_EQ(ranks(2, 1, 8), std::tuple(2, 1, 4)) << "experts are cut over more ranks";
  EXPECT_EQ(ranks(1, 16, 4), std::tuple(1, 2, 2)) << "both, on four copies of the dense layers";
}

TEST(Shrink, ExpertsHaveAsManyCopiesAsDenseLayersWhereTheOrderOfRanksAsksForIt) {
  RunConfig config = large_experts();
  config.parallel.use_tp_pp_dp_mapping = true;
  config.parallel.expert_model_parallel_size = 8;
  config.parallel.expert_tensor_parallel_size = 1;
  const SmallRun small = shrink(config, kExpertWorld);
  expect_valid(small, "tp-pp-dp");
  EXPECT_EQ(small.config.parallel.expert_model_parallel_size,
            small.config.parallel.tensor_model_parallel_size);
}

TEST(Shrink, FewTokensGetRoomForTheWorstCase) {
  RunConfig config = large_experts();
  config.parallel.expert_model_parallel_size = 16;
  config.parallel.expert_tensor_parallel_size = 1;
  config.model.moe.moe_token_dispatcher_type = TokenDispatcherType::alltoall;
  config.model.moe.moe_expert_rank_capacity_factor = 1.25;
  const SmallRun small = shrink(config, kExpertWorld);
  EXPECT_EQ(small.config.model.moe.moe_expert_rank_capacity_factor, 2.0);
  EXPECT_THAT(small.changes, Contains("room for rows 1.25 -> 2"));
}

TEST(Shrink, KeepsContextParallelRanksOfAnyNumber) {
  RunConfig config = large_run();
  config.parallel.tensor_model_parallel_size = config.parallel.pipeline_model_parallel_size = 1;
  config.parallel.sequence_parallel = false;
  const auto small_cp = [&](int64_t cp) {
    config.parallel.context_parallel_size = cp;
    config.model.seq_length = config.model.max_position_embeddings = 2 * cp * 128;
    const SmallRun small = shrink(config, cp);
    expect_valid(small, std::to_string(cp));
    return small.config.parallel.context_parallel_size;
  };
  EXPECT_EQ(small_cp(2), 2);
  EXPECT_EQ(small_cp(64), 4);
  EXPECT_EQ(small_cp(9), 9) << "of three ranks each is beside the two others";
  for (const int64_t prime : {5, 7, 11}) EXPECT_EQ(small_cp(prime), prime);
  EXPECT_EQ(small_cp(25), 5);
  config.parallel.cp_comm_type = {"a2a+p2p"};
  config.parallel.hierarchical_context_parallel_sizes = {5, 5};
  config.model.num_query_groups = {};
  config.model.group_query_attention = false;
  config.model.num_attention_heads = 40;
  EXPECT_EQ(small_cp(25), 5);
}

TEST(Shrink, SaysWhichWaysOfContextParallelismAreLost) {
  RunConfig config = large_run();
  config.model.num_layers = 6;
  config.parallel = {.pipeline_model_parallel_size = 3, .context_parallel_size = 4};
  config.parallel.hierarchical_context_parallel_sizes = {2, 2};
  config.parallel.cp_comm_type = {"p2p", "p2p", "a2a", "all_gather", "a2a+p2p", "p2p"};
  const SmallRun small = shrink(config, 12);
  expect_valid(small, "ways");
  EXPECT_THAT(small.changes,
              Contains("--cp-comm-type p2p a2a all_gather a2a+p2p -> p2p a2a all_gather"));
}

TEST(Shrink, EveryLayoutOfTheMatricesStaysOne) {
  for (const MatrixLayout& layout : context_matrix())
    expect_valid(shrink(layout.config, layout.world), layout.name());

  for (const MatrixLayout& layout : expert_matrix())
    expect_valid(shrink(layout.config, layout.world), layout.name());

  for (const MatrixLayout& layout : parity_matrix())
    expect_valid(shrink(layout.config, layout.world), layout.name());
}

}  // namespace
}  // namespace phx
