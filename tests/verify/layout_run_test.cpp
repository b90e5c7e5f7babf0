#include "phalanx/verify/layout_run.h"

#include <gtest/gtest.h>

#include "phalanx/base/distance.h"
#include "phalanx/verify/parity.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

RunConfig two_by_two() {
  RunConfig config = tiny_run();
  config.train.fp64 = true;
  config.parallel.tensor_model_parallel_size = 2;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 4;
  return config;
}

TEST(LayoutRun, OneRankHasTheBatchOfAllAndRecomputesNothing) {
  RunConfig config = two_by_two();
  config.train.global_batch_size = {};
  config.train.recompute_granularity = RecomputeGranularity::full;
  config.train.recompute_method = RecomputeMethod::block;
  config.train.recompute_num_layers = 2;
  const RunConfig one = on_one_rank(config, 8);
  EXPECT_EQ(one.train.global_batch_size, 4);
  EXPECT_EQ(model_ranks(one.parallel), 1);
  EXPECT_EQ(recompute_policy(one.train).layers, RecomputePolicy::Layers::none);
}

TEST(LayoutRun, PutsTensorsTogetherFromAllRanks) {
  const RunConfig config = two_by_two();
  const LayoutOutcome many = run_layout(config, 4, {.steps = 1});
  const LayoutOutcome one = run_layout(on_one_rank(config, 4), 1, {.steps = 1});
  ASSERT_EQ(many.weights.size(), one.weights.size());
  for (const auto& [name, tensor] : one.weights) {
    EXPECT_EQ(many.weights.at(name).values.size(), tensor.values.size()) << name;
    EXPECT_EQ(many.weights.at(name).missing, 0) << name;
    EXPECT_EQ(many.steps[0].gradients.at(name).missing, 0) << name;
  }
  EXPECT_EQ(one.weights.at("embedding.word_embeddings.weight").values.size(), 61u * 32u);
}

TEST(LayoutRun, GrowingBatchesTrainAsOnOneRank) {
  RunConfig config = tiny_run();
  config.model.num_layers = 4;
  config.train.fp64 = true;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = {};
  config.train.step_batch_size_schedule = "0:4 288:8";  // from the fourth step on
  config.parallel.pipeline_model_parallel_size = 2;
  config.parallel.num_virtual_stages_per_pipeline_rank = 2;
  config.parallel.overlap_grad_reduce = true;
  const Parity parity = compare(run_layout(config, 4, {.steps = 5}),
                                run_layout(on_one_rank(config, 4), 1, {.steps = 5}));
  EXPECT_EQ(parity.faults(), std::vector<std::string>{});
}

TEST(LayoutRun, OffloadedStatesAndActivationsTrainAsOnOneRank) {
  RunConfig config = two_by_two();
  config.parallel.sequence_parallel = config.parallel.use_distributed_optimizer = true;
  config.parallel.overlap_grad_reduce = config.parallel.overlap_param_gather = true;
  config.parallel.ddp_bucket_size = 3000;
  config.optim.use_precision_aware_optimizer = config.optim.optimizer_cpu_offload = true;
  config.optim.overlap_cpu_optimizer_d2h_h2d = true;
  config.optim.optimizer_offload_fraction = 0.6;
  config.optim.optimizer_offload_chunk = 1000;
  config.optim.adam_eps = 1e-6;  // a gradient that is zero but for rounding moves nothing
  config.train.cpu_offloading_num_layers = 2;
  const Parity parity = compare(run_layout(config, 4, {.steps = 3}),
                                run_layout(on_one_rank(config, 4), 1, {.steps = 3}));
  EXPECT_EQ(parity.faults(), std::vector<std::string>{});
}

// The command refuses it, as Megatron does; but each micro-batch has its own saves, and several of
// them may be under way.
TEST(LayoutRun, OffloadedActivationsOfSeveralMicroBatchesStayApart) {
  RunConfig config = two_by_two();
  config.parallel.tensor_model_parallel_size = 1;
  config.parallel.pipeline_model_parallel_size = 2;
  config.model.num_layers = 4;
  config.train.global_batch_size = 8;  // four micro-batches a rank
  config.optim.adam_eps = 1e-6;        // a gradient that is zero but for rounding moves nothing
  const LayoutOutcome one = run_layout(on_one_rank(config, 4), 1, {.steps = 3});
  config.train.cpu_offloading_num_layers = 2;
  RunConfig chunks = config, zero_bubble = config;
  chunks.parallel.num_virtual_stages_per_pipeline_rank = 2;
  chunks.train.cpu_offloading_num_layers = 1;  // of each chunk
  zero_bubble.parallel.pipeline_schedule = "zb-h1";
  for (const RunConfig& run : {config, chunks, zero_bubble})
    EXPECT_EQ(compare(run_layout(run, 4, {.steps = 3}), one).faults(), std::vector<std::string>{});
}

TEST(LayoutRun, GradientsReducedInBf16AreThoseOfOneRankToAFewRoundings) {
  RunConfig config = two_by_two();
  config.train.fp64 = false;
  config.train.bf16 = true;
  config.parallel.tensor_model_parallel_size = 1;
  config.parallel.use_distributed_optimizer = true;
  const LayoutOutcome one = run_layout(on_one_rank(config, 2), 1, {.steps = 1});
  config.parallel.grad_reduce_in_bf16 = true;
  const LayoutOutcome two = run_layout(config, 2, {.steps = 1});
  // Two micro-batches are added in bf16 on each rank, then two ranks: a handful of roundings of
  // 2^-9 of the largest value.
  for (const auto& [name, tensor] : one.steps[0].gradients) {
    const double error = relative_error(two.steps[0].gradients.at(name).values, tensor.values);
    EXPECT_LT(error, 8 * 0x1p-9) << name;
    EXPECT_GT(error, 0) << name << " should have been rounded";
  }
}

TEST(Parity, NamesWhatDiffers) {
  const GlobalTensor small{.values = {1, -4}, .missing = 0};
  LayoutOutcome one{.steps = {{.loss = 2, .grad_norm = 1, .gradients = {{"w", small}}}},
                    .weights = {{"w", small}},
                    .between_replicas_in = {}};
  EXPECT_EQ(compare(one, one).faults(), std::vector<std::string>{});
  EXPECT_EQ(compare(one, one).worst(), 0);

  LayoutOutcome many = one;
  many.steps[0].gradients["w"].values[0] = 1.5;
  many.weights["w"].missing = 1;
  many.steps[0].loss = 2.5;
  many.between_replicas = 0.25;
  many.between_replicas_in = {"w"};
  const Parity parity = compare(many, one);
  EXPECT_EQ(parity.worst(ParityEntry::Kind::gradient, 1), 0.125);  // 0.5 of 4
  EXPECT_EQ(parity.worst(), 0.25);
  EXPECT_EQ(parity.faults(), (std::vector<std::string>{
                                 "loss of step 1 differs by 2.5e-01 of its largest value",
                                 "gradient of w in step 1 differs by 1.2e-01 of its largest value",
                                 "w after step 1: no rank holds 1 of its elements",
                                 "w: ranks that hold the same elements differ, by up to 2.5e-01"}));
}

TEST(Parity, ANanAndAMissingParameterAreTheWorst) {
  const GlobalTensor small{.values = {1, -4}, .missing = 0};
  LayoutOutcome one{
      .steps = {{.loss = 2, .grad_norm = 1, .gradients = {{"v", small}, {"w", small}}}},
      .weights = {},
      .between_replicas_in = {}};
  LayoutOutcome many = one;
  many.steps[0].gradients["w"].values[0] = std::nan("");  // a finite difference comes after it
  many.steps[0].gradients.erase("v");
  EXPECT_EQ(
      compare(many, one).faults(),
      (std::vector<std::string>{"gradient of v in step 1: no rank holds 2 of its elements",
                                "gradient of w in step 1 differs by inf of its largest value"}));
}

}  // namespace
}  // namespace phx
