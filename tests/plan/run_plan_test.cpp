#include "phalanx/plan/run_plan.h"

#include <gtest/gtest.h>

#include <chrono>

#include "phalanx/plan/report.h"
#include "phalanx/train/num_parameters.h"
#include "plan/countable_run.h"

namespace phx {
namespace {

using phx::testing::countable_run;
using phx::testing::kParameters;

constexpr size_t at(Purpose purpose) { return static_cast<size_t>(purpose); }

RunConfig llama_405b() {
  RunConfig config;
  TransformerConfig& model = config.model;
  model.num_layers = 126;
  model.hidden_size = 16384;
  model.num_attention_heads = 128;
  model.group_query_attention = true;
  model.num_query_groups = 8;
  model.ffn_hidden_size = 53248;
  model.seq_length = model.max_position_embeddings = 8192;
  model.vocab_size = 128256;
  model.position_embedding_type = PositionEmbedding::rope;
  model.normalization = Normalization::RMSNorm;
  model.swiglu = model.untie_embeddings_and_output_weights = true;
  model.add_bias_linear = false;
  model.attention_dropout = model.hidden_dropout = 0;
  config.train.bf16 = true;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 1024;
  config.data.mock_data = true;
  ParallelConfig& parallel = config.parallel;
  parallel.tensor_model_parallel_size = 8;
  parallel.pipeline_model_parallel_size = 16;
  parallel.sequence_parallel = parallel.use_distributed_optimizer = true;
  parallel.account_for_embedding_in_pipeline_split = true;
  parallel.account_for_loss_in_pipeline_split = true;
  return config;
}

TEST(RunPlan, CountsWhatIsKeptOfAParameter) {
  const RunConfig config = countable_run();
  ASSERT_EQ(num_parameters(config.family, config.model), kParameters);
  const MemoryReport memory = plan_run(config, 1, {}).largest().memory;
  EXPECT_EQ(memory.live[at(Purpose::weights)], 2 * kParameters);
  EXPECT_EQ(memory.live[at(Purpose::gradients)], 4 * kParameters);
  // Two moments in fp32, and the 16 bits that make a master weight of a bf16 one.
  EXPECT_EQ(memory.live[at(Purpose::optimizer)], 10 * kParameters);
}

TEST(RunPlan, AShardedOptimizerIsCutOverTheDataParallelRanks) {
  RunConfig config = countable_run();
  config.parallel.use_distributed_optimizer = true;
  const RankPlan rank = plan_run(config, 2, {}).largest();
  constexpr int64_t kPadded = kParameters + 128;  // two pieces, each a multiple of 128 elements
  EXPECT_EQ(rank.memory.live[at(Purpose::weights)], 2 * kPadded);
  EXPECT_EQ(rank.memory.live[at(Purpose::optimizer)], 5 * kPadded);
  // Half of the gradients goes out to be summed, and half of the weights when it is updated.
  EXPECT_EQ(rank.traffic.at({"dp-cp", CommOp::reduce_scatter}).bytes_sent, 2 * kPadded);
  EXPECT_EQ(rank.traffic.at({"dp-cp", CommOp::all_gather}).bytes_sent, kPadded);
}

TEST(RunPlan, CountsTheMessagesOfAPipeline) {
  RunConfig config = countable_run();
  config.model.num_layers = 2;
  config.parallel.pipeline_model_parallel_size = 2;
  const RunPlan plan = plan_run(config, 2, {});
  ASSERT_EQ(plan.stages.size(), 2u);
  // Eight micro-batches of [24, 1, 128] in bf16, in either direction.
  constexpr int64_t kBytes = 8 * 24 * 128 * 2;
  EXPECT_EQ(plan.stages[0].traffic.at({"pp-forward", CommOp::send}).bytes_sent, kBytes);
  EXPECT_EQ(plan.stages[1].traffic.at({"pp-backward", CommOp::send}).bytes_sent, kBytes);
  EXPECT_EQ(plan.stages[1].traffic.at({"pp-forward", CommOp::receive}).calls, 8);
}

TEST(RunPlan, EarlierStagesHoldMoreMicroBatches) {
  RunConfig config = countable_run();
  config.model.num_layers = 4;
  config.model.untie_embeddings_and_output_weights = true;
  config.parallel.pipeline_model_parallel_size = 4;
  const RunPlan plan = plan_run(config, 4, {});
  const auto activations = [&](size_t stage) {
    return plan.stages[stage].memory.at_peak[at(Purpose::activations)];
  };
  EXPECT_GT(activations(1), activations(2));
  EXPECT_EQ(equal_stages(plan).size(), 4u);
}

TEST(RunPlan, MemoryDoesNotGrowWithTheMicroBatchesOfAStep) {
  RunConfig config = countable_run();
  config.model.num_layers = 2;
  config.parallel.pipeline_model_parallel_size = 2;
  const RunPlan few = plan_run(config, 2, {});
  config.train.global_batch_size = 64;
  const RunPlan many = plan_run(config, 2, {});
  for (size_t stage = 0; stage < 2; ++stage) {
    BytesByPurpose a = few.stages[stage].memory.at_peak, b = many.stages[stage].memory.at_peak;
    // Tokens and labels of all of a step's micro-batches are on the device, in three loaders.
    EXPECT_EQ(b[at(Purpose::runtime)] - a[at(Purpose::runtime)], 3 * 56 * 2 * 24 * 4);
    a[at(Purpose::runtime)] = b[at(Purpose::runtime)] = 0;
    EXPECT_EQ(a, b);
    EXPECT_EQ(few.stages[stage].memory.arena, many.stages[stage].memory.arena);
  }
}

TEST(RunPlan, GroupsOfContextParallelismTakeLibraryMemoryToo) {
  RunConfig config = countable_run();
  config.model.attention_dropout = 0;
  const int alone = plan_run(config, 4, {}).largest().groups;  // all ranks, and data-parallel ones
  EXPECT_EQ(alone, 2);
  config.parallel.context_parallel_size = 4;
  EXPECT_EQ(plan_run(config, 4, {}).largest().groups, alone + 1);
  config.parallel.cp_comm_type = {"a2a+p2p"};
  config.parallel.hierarchical_context_parallel_sizes = {2, 2};
  EXPECT_EQ(plan_run(config, 4, {}).largest().groups, alone + 3) << "neighbours and a ring";
}

TEST(RunPlan, ItFitsWhereTheAllocatorCanServeIt) {
  const RunConfig config = countable_run();
  const RunPlan plan = plan_run(config, 1, {.target = DeviceKind::cpu});
  const MemoryReport& memory = plan.largest().memory;
  const auto fit_in = [&](int64_t bytes) { return fit(config, plan, DeviceKind::cpu, bytes); };
  const Fit roomy = fit_in(memory.peak_reserved);
  EXPECT_TRUE(roomy.fits);
  EXPECT_FALSE(roomy.early_steps_tight);
  const Fit tight = fit_in(memory.peak_reserved - 1);
  EXPECT_TRUE(tight.fits);
  EXPECT_TRUE(tight.early_steps_tight);
  EXPECT_FALSE(fit_in(memory.peak_total - 1).fits);
}

TEST(RunPlan, TheLargestKnownModelIsPlannedInSeconds) {
  const auto start = std::chrono::steady_clock::now();
  const RunPlan plan = plan_run(llama_405b(), 1024, {});
  EXPECT_EQ(plan.stages.size(), 16u);
  EXPECT_EQ(plan.ranks_a_stage(), 64);
  EXPECT_EQ(plan.micro_batches, 128);
  // Two seconds on an idle machine of two cores; the bound is for a busy one.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace phx
