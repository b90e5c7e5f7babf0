// What experts keep from step to step, and what a rehearsal does with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/train/load_session.h"
#include "phalanx/train/save_session.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;

RunConfig expert_run() {
  RunConfig config = tiny_run();
  config.model.num_layers = 2;
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  MoeConfig& moe = config.model.moe;
  moe.num_experts = 4;
  moe.moe_router_score_function = RouterScoreFunction::sigmoid;
  moe.moe_router_enable_expert_bias = true;
  moe.moe_router_bias_update_rate = 0.125;
  moe.moe_router_load_balancing_type = {"global_aux_loss"};
  moe.moe_aux_loss_coeff = {0.01};
  return config;
}

struct Rank {
  explicit Rank(const RunConfig& config)
      : runtime({.kind = DeviceKind::cpu, .threads = 1}), session(config, runtime.device()) {}
  std::vector<double> buffer(const std::string& name) const {
    return to_values(session.buffers.find(name).value());
  }
  Runtime runtime;
  Session session;
};

const std::string kBias = "decoder.layers.1.mlp.router.expert_bias";
const std::string kLoads = "decoder.layers.1.mlp.router.global_tokens_per_expert";

// Of rank 0 in one step, between two others.
int64_t waits_of_a_step(const RunConfig& config) {
  const Sources sources(config);
  const Layout layout = make_layout(config.layout(), 2);
  int64_t waits = 0;
  run_thread_ranks(2, {}, [&](World& world) {
    Runtime runtime({.kind = DeviceKind::cpu, .threads = 1});
    const Mesh mesh(world, layout.mesh);
    Session session(config, sources, runtime.device(), mesh);
    for (int64_t i = 0; i < 3; ++i) {
      session.load_batch(session.batch_schedule.after(0, i));
      const int64_t before = runtime.host_waits();
      session.step.run(session.train_batches, {.iteration = i + 1, .update = i + 1, .lr = 1e-3});
      if (mesh.rank() == 0 && i == 1) waits = runtime.host_waits() - before;
      session.step.collect();
    }
  });
  return waits;
}

TEST(ExpertStep, TheHostWaitsOncePerLayerAndMicroBatchWhereRowsAreSentAndNeverElsewhere) {
  RunConfig config = expert_run();
  config.train.micro_batch_size = 1;  // 2 layers, 3 micro-batches a rank
  EXPECT_EQ(waits_of_a_step(config), 0) << "EP 1";
  config.parallel.expert_model_parallel_size = 2;
  EXPECT_EQ(waits_of_a_step(config), 0) << "all-gather";
  config.model.moe.moe_token_dispatcher_type = TokenDispatcherType::alltoall;
  EXPECT_EQ(waits_of_a_step(config), 2 * 3) << "all-to-all";
  config.parallel.expert_model_parallel_size = 1;
  config.parallel.expert_tensor_parallel_size = 2;
  EXPECT_EQ(waits_of_a_step(config), 0) << "all-to-all with EP 1";
}

TEST(ExpertStep, TheBiasMovesByTheSignOfWhatAnExpertLacksOverAllMicroBatches) {
  Rank rank(expert_run());  // three micro-batches a step
  EXPECT_EQ(rank.buffer(kBias), (std::vector<double>(4, 0.0)));
  train(rank.session, 0, 1);
  const std::vector<double> tally = rank.session.step.router_tally();
  const auto width = size_t(kernels::RouterTally::width(4));
  const std::span row(tally.data() + width, width);  // of layer 1
  const double tokens = 6 * 24;
  EXPECT_EQ(row[5], tokens);
  EXPECT_EQ(row[6], 3) << "calls";
  EXPECT_EQ(row[0] + row[1] + row[2] + row[3], 2 * tokens);
  std::vector<double> want;
  for (int e = 0; e < 4; ++e)
    want.push_back(row[e] < tokens / 2 ? 0.125 : row[e] > tokens / 2 ? -0.125 : 0.0);
  EXPECT_EQ(rank.buffer(kBias), want);
  EXPECT_EQ(rank.buffer(kLoads), std::vector<double>(row.begin() + 7, row.begin() + 11));
}

TEST(ExpertStep, RecomputedLayersAreCountedOnce) {
  RunConfig config = expert_run();
  Rank kept(config);
  config.train.recompute_granularity = RecomputeGranularity::full;
  config.train.recompute_method = RecomputeMethod::uniform;
  config.train.recompute_num_layers = 1;
  Rank recomputed(config);
  for (Rank* rank : {&kept, &recomputed}) train(rank->session, 0, 2);
  EXPECT_EQ(recomputed.session.step.router_tally(), kept.session.step.router_tally());
  EXPECT_EQ(recomputed.buffer(kBias), kept.buffer(kBias));
}

TEST(ExpertStep, ASkippedStepLeavesTheBiasAsItWas) {
  Rank rank(expert_run());
  train(rank.session, 0, 1);
  const std::vector<double> bias = rank.buffer(kBias), loads = rank.buffer(kLoads);
  rank.session.train_batches.load(6);
  rank.session.step.run(rank.session.train_batches,
                        {.iteration = 2, .update = 2, .lr = 1e-3, .spoiled = true});
  EXPECT_TRUE(rank.session.step.collect().skipped);
  EXPECT_EQ(rank.buffer(kBias), bias);
  EXPECT_EQ(rank.buffer(kLoads), loads);
}

TEST(ExpertStep, NoOptimizerKnowsTheBiasAndCheckpointsHoldIt) {
  const TempFolder folder;
  RunConfig config = expert_run();
  config.train.bf16 = true;
  Rank rank(config);
  for (const Parameter* parameter : rank.session.store.parameters())
    EXPECT_THAT(parameter->name(), ::testing::Not(HasSubstr("bias")));
  train(rank.session, 0, 2);
  save_session(folder.path(), rank.session, {.iteration = 2});
  const NativeCheckpoint saved(checkpoint_path(folder.path(), 2));
  EXPECT_EQ(describe(saved.tensors().at(kBias)), "F32 [4]");
  EXPECT_FALSE(saved.tensors().contains("optimizer.exp_avg." + kBias));

  config.train.load = folder.path().string();
  Rank again(config);
  ASSERT_TRUE(load_session(again.session));
  EXPECT_EQ(again.buffer(kBias), rank.buffer(kBias));
  EXPECT_EQ(again.buffer(kLoads), rank.buffer(kLoads));

  // Other ways to balance need no loads; and a bias that a run has no use for is told.
  config.model.moe.moe_router_load_balancing_type = {"aux_loss"};
  Rank other(config);
  ASSERT_TRUE(load_session(other.session));
  EXPECT_EQ(other.buffer(kBias), rank.buffer(kBias));
}

TEST(ExpertStep, ARehearsalSpreadsEqualTokensOverAllExperts) {
  RunConfig config = expert_run();
  config.model.moe.moe_token_dispatcher_type = TokenDispatcherType::alltoall;
  config.model.moe.moe_expert_rank_capacity_factor = 1.0;
  config.parallel.expert_model_parallel_size = 2;
  config.train.global_batch_size = 4;
  const Sources sources(config);
  const auto forward = [&](bool rehearsal) {
    run_thread_ranks(2, {}, [&](World& world) {
      Runtime runtime({.kind = DeviceKind::cpu, .threads = 1});
      const Mesh mesh(world, make_layout(config.layout(), 2).mesh);
      Session session(config, sources, runtime.device(), mesh);
      session.load_batch(0);
      Batch batch = session.train_batches.micro_batch(0);
      Tensor tokens = batch.tensors.at("tokens");
      set_zero(tokens);
      GradMode off(runtime, false);
      session.model().forward({}, batch, {}, {.training = false, .rehearsal = rehearsal});
    });
  };
  forward(true);
  EXPECT_THAT(error_of([&] { forward(false); }), HasSubstr("rows, but there is room for"));
}

}  // namespace
}  // namespace phx
