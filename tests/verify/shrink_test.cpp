#include "phalanx/verify/shrink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/verify/parity.h"
#include "phalanx/verify/proof_text.h"
#include "verify/parity_matrix.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Llama 3 70B on 64 x 32 ranks, as a starting point.
RunConfig large_run() {
  RunConfig config;
  config.model.num_layers = 80;
  config.model.hidden_size = 8192;
  config.model.ffn_hidden_size = 28672;
  config.model.num_attention_heads = 64;
  config.model.group_query_attention = true;
  config.model.num_query_groups = 8;
  config.model.seq_length = config.model.max_position_embeddings = 8192;
  config.model.vocab_size = 128256;
  config.model.position_embedding_type = PositionEmbedding::rope;
  config.model.normalization = Normalization::RMSNorm;
  config.model.swiglu = true;
  config.model.add_bias_linear = false;
  config.parallel.tensor_model_parallel_size = 8;
  config.parallel.sequence_parallel = true;
  config.parallel.pipeline_model_parallel_size = 8;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 2048;
  config.train.bf16 = true;
  config.optim.use_precision_aware_optimizer = true;
  config.optim.exp_avg_sq_dtype = StateDType::bf16;
  config.optim.lr = 1e-4;
  return config;
}

constexpr int64_t kWorld = 2048;

void expect_valid(const SmallRun& small, const std::string& name) {
  const Problems problems = layout_problems(small.config.layout(), small.world);
  EXPECT_TRUE(problems.empty()) << name << ": " << format_problems(problems);
  EXPECT_LE(small.world, 16) << name;
  EXPECT_LE(small.config.model.num_layers, 16) << name;
}

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

TEST(Shrink, KeepsTheKindsOfStages) {
  RunConfig config = large_run();
  const auto pieces = [&] {
    const SmallRun small = shrink(config, kWorld);
    expect_valid(small, "stages");
    std::string text;
    const Placement placement = make_layout(small.config.layout(), small.world).placement;
    for (int chunk = 0; chunk < placement.chunks; ++chunk)
      for (int rank = 0; rank < placement.stages; ++rank)
        text += std::to_string(placement.at(rank, chunk).num_layers);
    return text;
  };
  ParallelConfig& ranks = config.parallel;
  ranks.num_virtual_stages_per_pipeline_rank = 5;
  EXPECT_EQ(pieces(), "11111111");
  ranks.num_virtual_stages_per_pipeline_rank = {};
  ranks.num_layers_per_virtual_pipeline_stage = 2;
  EXPECT_EQ(pieces(), "11111111");
  ranks.num_layers_per_virtual_pipeline_stage = {};
  ranks.decoder_first_pipeline_num_layers = 10 - 3;
  ranks.decoder_last_pipeline_num_layers = 10 + 3;
  EXPECT_EQ(pieces(), "1222");
  ranks.decoder_first_pipeline_num_layers = 17;
  ranks.decoder_last_pipeline_num_layers = {};
  EXPECT_EQ(pieces(), "2111");
  ranks.decoder_first_pipeline_num_layers = {};
  config.model.num_layers = 78;
  ranks.account_for_embedding_in_pipeline_split = true;
  ranks.account_for_loss_in_pipeline_split = true;
  EXPECT_EQ(pieces(), "1221");
  config.model.num_layers = 80;
  ranks.account_for_embedding_in_pipeline_split = false;
  ranks.account_for_loss_in_pipeline_split = false;
  ranks.pipeline_model_parallel_layout = "Et*10|t*12|(t*12|)*4t*10|L";
  EXPECT_EQ(pieces(), "1220");
  ranks.pipeline_model_parallel_layout = "E|(ttt|)*14t*38L";
  EXPECT_EQ(pieces(), "01111112");
}

TEST(Shrink, LayersThatDifferStillDo) {
  RunConfig config = large_run();
  config.model.window_size = WindowSize{4095, 0};
  config.model.window_attn_skip_freq = FrequencyPattern::every_nth(6);
  std::vector<int64_t> no_rope(80, 0);
  no_rope[79] = 1;
  config.model.no_rope_freq = FrequencyPattern::of(no_rope);
  const TransformerConfig small = shrink(config, kWorld).config.model;
  ASSERT_EQ(small.num_layers, 4);
  EXPECT_EQ(small.window_size->left, 2);
  EXPECT_TRUE(small.layer_window(0));
  EXPECT_FALSE(small.layer_window(1));
  EXPECT_TRUE(small.layer_uses_rope(0));
  EXPECT_FALSE(small.layer_uses_rope(3));
  config.model.window_size = WindowSize{8191, 0};  // all of the sequence
  EXPECT_GE(shrink(config, kWorld).config.model.window_size->left, small.seq_length);
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

TEST(Shrink, EveryLayoutOfTheMatrixStaysOne) {
  for (const MatrixLayout& layout : parity_matrix())
    expect_valid(shrink(layout.config, layout.world), layout.name());
}

TEST(ProofText, SaysProvedOrWhatDiffers) {
  SmallRun small = shrink(large_run(), kWorld);
  const RunConfig one = on_one_rank(small.config, small.world);
  const LayoutOutcome many = run_layout(small.config, small.world);
  const std::string proved = proof_text(compare(many, run_layout(one, 1)), small.world, false);
  EXPECT_THAT(proved, HasSubstr("proved: 16 ranks compute what one rank computes"));
  EXPECT_THAT(proved, HasSubstr("the worst of them\n"));

  // A layout that computes something else: here because one rank has another norm.
  RunConfig other = one;
  other.model.norm_epsilon = 1e-4;
  const std::string wrong = proof_text(compare(many, run_layout(other, 1)), small.world, true);
  EXPECT_THAT(wrong, HasSubstr("not proved: 16 ranks do not compute what one rank computes\n"));
  EXPECT_THAT(wrong,
              HasSubstr("  gradient of decoder.final_layernorm.weight in step 1 differs by"));
  EXPECT_THAT(wrong, Not(HasSubstr("more; --verbose")));
}

}  // namespace
}  // namespace phx
