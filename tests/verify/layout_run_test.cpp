#include "verify/layout_run.h"

#include <gtest/gtest.h>

#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

RunConfig proof_run() {
  RunConfig config = tiny_run();
  config.train.fp64 = true;
  config.model.num_layers = 4;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 8;
  return config;
}

void expect_same(const RunConfig& config, int world) {
  const LayoutOutcome one = run_layout(on_one_rank(config, world), 1, 2);
  const LayoutOutcome many = run_layout(config, world, 2);
  ASSERT_EQ(many.steps.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(many.steps[i].loss, one.steps[i].loss, 1e-10 * one.steps[i].loss);
    EXPECT_NEAR(many.steps[i].grad_norm, one.steps[i].grad_norm, 1e-10 * one.steps[i].grad_norm);
  }
  ASSERT_EQ(many.gradients.size(), one.gradients.size());
  for (const auto& [name, tensor] : one.gradients) {
    ASSERT_TRUE(many.gradients.contains(name)) << name;
    EXPECT_EQ(many.gradients.at(name).missing, 0) << name;
    EXPECT_LE(relative_error(many.gradients.at(name).values, tensor.values), 1e-10) << name;
    EXPECT_LE(relative_error(many.weights.at(name).values, one.weights.at(name).values), 1e-10)
        << name;
  }
  EXPECT_EQ(many.between_replicas, 0);
}

TEST(LayoutRun, TensorParallel) {
  RunConfig config = proof_run();
  config.parallel.tensor_model_parallel_size = 2;
  expect_same(config, 2);
}

TEST(LayoutRun, SequenceParallel) {
  RunConfig config = proof_run();
  config.parallel.tensor_model_parallel_size = 2;
  config.parallel.sequence_parallel = true;
  expect_same(config, 2);
}

TEST(LayoutRun, MoreTensorRanksThanKeyGroups) {
  RunConfig config = proof_run();
  config.parallel.tensor_model_parallel_size = 4;
  config.parallel.sequence_parallel = true;
  expect_same(config, 4);
}

TEST(LayoutRun, Pipeline) {
  RunConfig config = proof_run();
  config.parallel.pipeline_model_parallel_size = 2;
  expect_same(config, 2);
  config.parallel.num_virtual_stages_per_pipeline_rank = 2;
  expect_same(config, 2);
  config.parallel.num_virtual_stages_per_pipeline_rank = {};
  config.parallel.pipeline_schedule = PipelineSchedule::zero_bubble;
  expect_same(config, 2);
}

TEST(LayoutRun, DataParallel) {
  RunConfig config = proof_run();
  expect_same(config, 2);
  config.parallel.overlap_grad_reduce = true;
  config.parallel.ddp_bucket_size = 3000;
  expect_same(config, 2);
  config.parallel.use_distributed_optimizer = true;
  expect_same(config, 4);
  config.parallel.overlap_param_gather = true;
  expect_same(config, 2);
}

TEST(LayoutRun, Everything) {
  RunConfig config = proof_run();
  config.parallel.tensor_model_parallel_size = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.pipeline_model_parallel_size = 2;
  config.parallel.use_distributed_optimizer = true;
  config.parallel.overlap_grad_reduce = true;
  config.parallel.overlap_param_gather = true;
  expect_same(config, 8);
}

}  // namespace
}  // namespace phx
