#include "phalanx/train/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "phalanx/base/error.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(Layout, RanksThatNoFlagNamesAreDataParallel) {
  RunConfig config = tiny_run();  // 4 heads, 2 key groups
  config.parallel.tensor_model_parallel_size = 4;
  config.train.global_batch_size = 6;
  const Layout layout = make_layout(config.layout(), 12);
  EXPECT_EQ(layout.mesh.sizes.tp, 4);
  EXPECT_EQ(layout.mesh.sizes.dp, 3);
  EXPECT_EQ(layout.mesh.sizes.pp, 1);
  EXPECT_EQ(layout.mesh.key_sharers, 2);
  EXPECT_EQ(layout.mesh.order, kDefaultOrder);
}

TEST(Layout, TheFewestRanksHoldTheModelAndItsExpertsEvenly) {
  ParallelConfig ranks;
  ranks.tensor_model_parallel_size = 2;
  ranks.pipeline_model_parallel_size = 3;
  EXPECT_EQ(model_ranks(ranks), 6);
  EXPECT_EQ(fewest_ranks(ranks), 6);
  EXPECT_EQ(expert_tensor_ranks(ranks), 2);
  ranks.expert_tensor_parallel_size = 1;
  ranks.expert_model_parallel_size = 4;
  EXPECT_EQ(fewest_ranks(ranks), 12);  // 4 ranks of experts on a stage: two copies of the model
}

TEST(Layout, ShardsHaveCopiesOnlyWhereSomethingIsSharded) {
  RunConfig config = tiny_run();
  config.train.global_batch_size = 8;
  config.parallel.num_distributed_optimizer_instances = 2;
  EXPECT_EQ(make_layout(config.layout(), 4).mesh.shard_copies, 1);
  config.parallel.use_distributed_optimizer = true;
  EXPECT_EQ(make_layout(config.layout(), 4).mesh.shard_copies, 2);
}

TEST(Layout, SizesOfContextParallelismAreIdleOnOneRank) {
  RunConfig config = tiny_run();
  config.parallel.hierarchical_context_parallel_sizes = {2, 2};
  EXPECT_EQ(make_layout(config.layout(), 1).mesh.cp_inner, 1);
}

TEST(Layout, EvaluationRunsForwardsOnly) {
  RunConfig config = tiny_run();
  config.model.num_layers = 4;
  config.parallel.pipeline_model_parallel_size = 2;
  const Layout layout = make_layout(config.layout(), 2);
  const auto backwards = [](const Schedule& schedule) {
    return std::ranges::count(schedule.ranks[0], StepKind::backward, &ScheduleStep::kind);
  };
  EXPECT_EQ(backwards(layout.train_schedule(3)), 3);
  EXPECT_EQ(backwards(layout.evaluate_schedule(3)), 0);
  EXPECT_EQ(layout.evaluate_schedule(3).micro_batches, 3);
}

TEST(Layout, WhatCannotBeTrainedIsAnError) {
  RunConfig config = tiny_run();  // 3 layers
  config.parallel.pipeline_model_parallel_size = 2;
  EXPECT_THROW(make_layout(config.layout(), 2), Error);
}

}  // namespace
}  // namespace phx
