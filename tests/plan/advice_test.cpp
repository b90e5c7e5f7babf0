#include "phalanx/plan/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/countable_run.h"

namespace phx {
namespace {

using phx::testing::countable_run;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Advice, AreTheNumbersOfPlanningAgainWithTheFlag) {
  RunConfig config = countable_run();
  const RunPlan plan = plan_run(config, 4, {});
  const int64_t taken = plan.largest().memory.reserved;
  const auto trials = try_remedies(config, plan, {.plan = {}, .device_bytes = taken / 2});
  config.parallel.use_distributed_optimizer = true;
  ASSERT_FALSE(trials.empty());
  EXPECT_EQ(trials[0].flags, "--use-distributed-optimizer");
  EXPECT_EQ(trials[0].taken, plan_run(config, 4, {}).largest().memory.reserved);
  EXPECT_LT(trials[0].taken, taken);
  EXPECT_LT(trials[0].added_flops, 0) << "a weight is updated once instead of four times";
  const auto recompute = std::ranges::find_if(
      trials, [](const Trial& trial) { return trial.flags.starts_with("--recompute"); });
  ASSERT_NE(recompute, trials.end());
  EXPECT_GT(recompute->added_flops, 0.1);
  // No sequence parallelism without tensor parallelism.
  for (const Trial& trial : trials) EXPECT_THAT(trial.flags, Not(HasSubstr("sequence")));
}

std::vector<std::string> flags_of(const std::vector<Trial>& trials) {
  std::vector<std::string> flags;
  for (const Trial& trial : trials) flags.push_back(trial.flags);
  return flags;
}

TEST(Advice, WhereARemedySufficesTheyAreNotTriedTogether) {
  const RunConfig config = countable_run();
  const RunPlan plan = plan_run(config, 4, {});
  std::vector<std::string> heard;
  const auto trials = try_remedies(config, plan, {.plan = {}, .device_bytes = int64_t{1} << 40},
                                   [&](const std::string& flags) { heard.push_back(flags); });
  EXPECT_EQ(flags_of(trials), heard) << "each is told before it is planned";
  for (const Trial& trial : trials) EXPECT_TRUE(trial.fits) << trial.flags;
  EXPECT_THAT(heard.back(), HasSubstr("--tensor-model-parallel-size 2"))
      << "two stages cannot share one layer";
  const auto none = try_remedies(config, plan, {.plan = {}, .device_bytes = 1});
  ASSERT_EQ(none.size(), trials.size() + 1);
  EXPECT_THAT(none.back().flags,
              ::testing::AllOf(HasSubstr("--use-distributed-optimizer"), HasSubstr(" --recompute"),
                               HasSubstr(" --optimizer-cpu-offload")));
  EXPECT_FALSE(none.back().fits);
}

// Bytes and added FLOPs of the trial whose flags end so.
const Trial* trial_of(const std::vector<Trial>& trials, const std::string& end) {
  const auto found =
      std::ranges::find_if(trials, [&](const Trial& trial) { return trial.flags.ends_with(end); });
  return found == trials.end() ? nullptr : &*found;
}

TEST(Advice, LongSequencesAreRecomputedAroundTheirAttentionAndInPieces) {
  RunConfig config = countable_run();
  config.train.global_batch_size = 4;
  config.model.num_layers = 2;
  config.model.seq_length = config.model.max_position_embeddings = 8 * config.model.hidden_size;
  const RunPlan plan = plan_run(config, 4, {});
  const auto trials = try_remedies(config, plan, {.plan = {}, .device_bytes = 1});
  const Trial* full = trial_of(trials, "--recompute-num-layers 1");
  const Trial* pieces = trial_of(trials, "--mlp-chunks-for-training 2");
  const Trial* around = trial_of(trials, "--recompute-keep-attention --mlp-chunks-for-training 2");
  ASSERT_TRUE(full != nullptr && pieces != nullptr && around != nullptr);
  EXPECT_LT(pieces->taken, plan.largest().memory.reserved);
  EXPECT_LT(around->added_flops, full->added_flops - 0.02) << "attention is computed once";
  EXPECT_THAT(trials.back().flags, Not(HasSubstr("keep-attention")))
      << "all together is what takes least";
  EXPECT_THAT(trials.back().flags, HasSubstr("--mlp-chunks-for-training 2"));
  config.model.moe.num_experts = 4;
  config.model.moe.moe_ffn_hidden_size = 128;
  const RunPlan experts = plan_run(config, 4, {});
  for (const Trial& trial : try_remedies(config, experts, {.plan = {}, .device_bytes = 1}))
    EXPECT_THAT(trial.flags, Not(HasSubstr("mlp-chunks"))) << "no layer has a dense MLP";
}

TEST(Advice, WhatTheRunHasAlreadyIsNotAdvised) {
  RunConfig config = countable_run();
  config.parallel.use_distributed_optimizer = true;
  config.train.micro_batch_size = 2;
  const auto trials =
      try_remedies(config, plan_run(config, 2, {}), {.plan = {}, .device_bytes = int64_t{1} << 40});
  const auto flags = flags_of(trials);
  EXPECT_EQ(std::ranges::count(flags, "--use-distributed-optimizer"), 0);
  EXPECT_EQ(std::ranges::count(flags, "--micro-batch-size 1"), 1);
}

TEST(Advice, ContextParallelRanksShareTheOptimizer) {
  RunConfig config = countable_run();
  config.model.attention_dropout = 0;
  const auto first = [&](int world) {
    return try_remedies(config, plan_run(config, world, {}),
                        {.plan = {}, .device_bytes = int64_t{1} << 40})
        .at(0)
        .flags;
  };
  EXPECT_NE(first(1), "--use-distributed-optimizer") << "one rank has nobody to share it with";
  config.parallel.context_parallel_size = 2;
  EXPECT_EQ(first(2), "--use-distributed-optimizer");
}

TEST(Advice, TensorRanksComeFromDataRanksOrAreAdded) {
  RunConfig config = countable_run();
  const auto advised = [&](int world) {
    for (const Trial& trial : try_remedies(config, plan_run(config, world, {}),
                                           {.plan = {}, .device_bytes = int64_t{1} << 40}))
      if (trial.flags.starts_with("--tensor")) return trial.flags;
    return std::string("none");
  };
  EXPECT_EQ(advised(2), "--tensor-model-parallel-size 2");
  EXPECT_EQ(advised(1), "--tensor-model-parallel-size 2 on 2 ranks");
}

}  // namespace
}  // namespace phx
