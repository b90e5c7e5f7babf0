// What fully sharded data parallelism sends in a step, against closed forms.
#include <gtest/gtest.h>

#include "phalanx/parallel/data/unit.h"
#include "phalanx/plan/rank_plan.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr int64_t kLayers = 4, kRanks = 2, kMicroBatches = 3;

// Units: an embedding, the layers, a final norm, an output layer.
RunConfig sharded_run(Sharding sharding) {
  RunConfig config = tiny_run();
  config.model.num_layers = kLayers;
  config.model.untie_embeddings_and_output_weights = true;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = kMicroBatches * kRanks;
  config.parallel.use_megatron_fsdp = true;
  config.parallel.data_parallel_sharding_strategy = sharding;
  return config;
}

struct Sent {
  Traffic gathers, sums;
};

Sent sent_by(const RunConfig& config, int world = kRanks) {
  const RankPlan plan = plan_rank(config, world, 0, {.target = DeviceKind::cpu});
  const auto of = [&](CommOp op) {
    const auto found = plan.traffic.find({"dp-cp", op});
    return found == plan.traffic.end() ? Traffic{} : found->second;
  };
  return {of(CommOp::all_gather), of(CommOp::reduce_scatter)};
}

// Bytes of a unit's weights, in pieces for two ranks: what one sends to gather it.
struct UnitBytes {
  int64_t embedding, layer, norm, head;
};
UnitBytes unit_bytes() {
  Runtime runtime;
  const RunConfig config = sharded_run(Sharding::optim_grads_params);
  const std::unique_ptr<Model> model = config.family(config.model);
  const ParameterStore store(*model, runtime.device(), {.cut = {.ranks = kRanks}, .unit = unit_of});
  UnitBytes bytes{};
  for (const Bucket& bucket : store.buckets()) {
    const std::string& name = store.parameters()[bucket.parameters[0]]->name();
    const int64_t piece = bucket.piece.count * 4;
    if (name.starts_with("embedding")) bytes.embedding = piece;
    if (name.starts_with("decoder.layers.0")) bytes.layer = piece;
    if (name.starts_with("decoder.final")) bytes.norm = piece;
    if (name.starts_with("output")) bytes.head = piece;
  }
  return bytes;
}

// A micro-batch gathers every layer for its forward and again for its backward. The embedding's
// backward reads no weight; the output layer's, and that of the norm before it, follow upon their
// forward, and so does the first layer of the next micro-batch upon its backward.
TEST(ShardedTraffic, AMicroBatchGathersALayerTwiceAndSumsItOnce) {
  const Sent sent = sent_by(sharded_run(Sharding::optim_grads_params));
  const int64_t m = kMicroBatches;
  EXPECT_EQ(sent.gathers.calls, m * (1 + 2 * kLayers + 1 + 1) - (m - 1));
  EXPECT_EQ(sent.sums.calls, m * (kLayers + 3));
  const UnitBytes unit = unit_bytes();
  EXPECT_EQ(sent.gathers.bytes_sent,
            m * (unit.embedding + 2 * kLayers * unit.layer + unit.norm + unit.head) -
                (m - 1) * unit.layer);
  EXPECT_EQ(sent.sums.bytes_sent,
            m * (unit.embedding + kLayers * unit.layer + unit.norm + unit.head));
}

TEST(ShardedTraffic, RecomputedLayersAreGatheredNoMoreOften) {
  RunConfig config = sharded_run(Sharding::optim_grads_params);
  const int64_t plain = sent_by(config).gathers.calls;
  config.train.recompute_granularity = RecomputeGranularity::full;
  config.train.recompute_method = RecomputeMethod::uniform;
  config.train.recompute_num_layers = 1;
  EXPECT_EQ(sent_by(config).gathers.calls, plain);
}

TEST(ShardedTraffic, ATiedEmbeddingIsGatheredForTheHeadAgain) {
  RunConfig config = sharded_run(Sharding::optim_grads_params);
  const Sent untied = sent_by(config);
  config.model.untie_embeddings_and_output_weights = false;
  const Sent tied = sent_by(config);
  EXPECT_EQ(tied.gathers.calls, untied.gathers.calls);
  EXPECT_EQ(tied.sums.calls, untied.sums.calls - kMicroBatches) << "one weight, one gradient";
}

TEST(ShardedTraffic, KeptWeightsAreGatheredOnceAStep) {
  RunConfig config = sharded_run(Sharding::optim_grads_params);
  config.parallel.torch_fsdp2_no_reshard_after_forward = true;
  EXPECT_EQ(sent_by(config).gathers.calls, kLayers + 3);
}

TEST(ShardedTraffic, ShardedGradientsGatherUpdatedWeightsOnceAStep) {
  const Sent sent = sent_by(sharded_run(Sharding::optim_grads));
  EXPECT_EQ(sent.gathers.calls, kLayers + 3);
  EXPECT_EQ(sent.sums.calls, kMicroBatches * (kLayers + 3));
}

TEST(ShardedTraffic, WeightGradientsThatArePutOffGatherNothing) {
  RunConfig config = sharded_run(Sharding::optim_grads_params);
  config.parallel.pipeline_model_parallel_size = 2;
  const int64_t in_order = sent_by(config, 2 * kRanks).gathers.calls;
  config.parallel.pipeline_schedule = "zb-h1";
  EXPECT_EQ(sent_by(config, 2 * kRanks).gathers.calls, in_order);
}

}  // namespace
}  // namespace phx
