// Options that trade memory for something else: what they change in a run, and what not.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "phalanx/comm/thread_world.h"
#include "phalanx/core/host_side.h"
#include "phalanx/train/session.h"
#include "phalanx/train/trainer.h"
#include "support/gradients.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

RunConfig bf16_run() {
  RunConfig config = tiny_run();
  config.train.bf16 = true;
  return config;
}

void set_16_bit_states(OptimizerConfig& optim) {
  optim.use_precision_aware_optimizer = true;
  optim.main_grads_dtype = optim.exp_avg_dtype = optim.exp_avg_sq_dtype = StateDType::bf16;
}

RunConfig offloaded(RunConfig config, double fraction, bool overlap) {
  config.optim.use_precision_aware_optimizer = config.optim.optimizer_cpu_offload = true;
  config.optim.optimizer_offload_fraction = fraction;
  config.optim.overlap_cpu_optimizer_d2h_h2d = overlap;
  config.optim.optimizer_offload_chunk = 1000;  // several chunks go through each buffer
  return config;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<char> states;  // and weights
  MemoryReport memory;
  HostMemory host;
};

Outcome run(const RunConfig& config, int64_t steps = 6, RuntimeOptions device = {.threads = 2}) {
  Runtime runtime(device);
  Session session(config, runtime.device());
  Outcome outcome{.losses = train(session, 0, steps)};
  outcome.states = state_bytes(session);
  outcome.memory = runtime.allocator().report();
  outcome.host = host_memory(runtime);
  return outcome;
}

int64_t of(const BytesByPurpose& bytes, Purpose purpose) { return bytes[size_t(purpose)]; }

TEST(PrecisionAwareOptimizer, TakesTheBytesOfItsTypes) {
  RunConfig config = bf16_run();
  const Outcome wide = run(config, 1);
  set_16_bit_states(config.optim);
  const Outcome narrow = run(config, 1);
  const int64_t n = of(wide.memory.live, Purpose::weights) / 2;  // elements
  EXPECT_EQ(of(wide.memory.live, Purpose::gradients), 4 * n);
  EXPECT_EQ(of(wide.memory.live, Purpose::optimizer), (2 + 4 + 4) * n);
  EXPECT_EQ(of(narrow.memory.live, Purpose::gradients), 2 * n);
  EXPECT_EQ(of(narrow.memory.live, Purpose::optimizer), (2 + 2 + 2) * n);
}

TEST(PrecisionAwareOptimizer, FollowsTheCurveOf32BitStates) {
  RunConfig config = bf16_run();
  config.model.attention_dropout = config.model.hidden_dropout = 0;
  RunConfig narrow = config;
  set_16_bit_states(narrow.optim);
  const auto a = run(config, 120).losses, b = run(narrow, 120).losses;
  EXPECT_LT(a.back(), 0.5 * a.front());
  // Means of ten steps: the runs drift apart as any two in bf16 do, whose single losses differ by
  // a few percent here. Gradients are rounded to 2^-9 three times a step, moments to 2^-8.
  for (size_t begin = 0; begin < a.size(); begin += 10) {
    double mean_a = 0, mean_b = 0;
    for (size_t i = begin; i < begin + 10; ++i) {
      mean_a += a[i] / 10;
      mean_b += b[i] / 10;
    }
    EXPECT_NEAR(mean_b, mean_a, 0.03 * mean_a) << "steps from " << begin;
  }
}

TEST(PrecisionAwareOptimizer, IsTheSameEveryTimeAndForEveryNumberOfThreads) {
  RunConfig config = bf16_run();
  set_16_bit_states(config.optim);
  const Outcome one = run(config, 6, {.threads = 1});
  for (const int threads : {1, 5}) {
    const Outcome other = run(config, 6, {.threads = threads});
    EXPECT_EQ(one.losses, other.losses);
    EXPECT_TRUE(one.states == other.states);
  }
}

// Bytes of weights and states after the run that the config describes.
std::vector<char> trained(const RunConfig& config) {
  Runtime runtime({.threads = 2});
  Session session(config, runtime.device());
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  {
    Terminal terminal(nowhere, nowhere, TerminalMode::plain);
    Trainer(session, terminal, {.measures_peak = false}).run();
  }
  std::fclose(nowhere);
  return state_bytes(session);
}

TEST(PrecisionAwareOptimizer, GoesOnFromACheckpointToTheByteOffloadedOrNot) {
  const TempFolder folder;
  RunConfig whole = bf16_run();
  set_16_bit_states(whole.optim);
  whole.train.train_iters = 8;
  RunConfig first = whole, second = whole;
  first.train.exit_interval = 4;
  first.train.save = folder.path();
  second.train.load = folder.path();
  const std::vector<char> all = trained(whole);
  trained(offloaded(first, 1, true));  // the file does not tell where the states lay
  EXPECT_TRUE(all == trained(second));
  EXPECT_TRUE(all == trained(offloaded(second, 1, false)));
}

TEST(OffloadedOptimizer, ChangesNoBit) {
  std::vector<RunConfig> configs = {tiny_run(), bf16_run(), bf16_run(), tiny_run()};
  set_16_bit_states(configs[2].optim);
  configs[2].optim.decoupled_lr = 1e-3;
  configs[3].train.fp16 = true;
  for (const RunConfig& config : configs) {
    const Outcome plain = run(config);
    for (const double fraction : {1.0, 0.4}) {
      for (const bool overlap : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "fraction " << fraction << ", overlap " << overlap);
        const Outcome other = run(offloaded(config, fraction, overlap));
        EXPECT_EQ(plain.losses, other.losses);
        EXPECT_TRUE(plain.states == other.states);
      }
    }
  }
}

TEST(OffloadedOptimizer, KeepsItsStatesInHostMemory) {
  const Outcome plain = run(bf16_run()), all = run(offloaded(bf16_run(), 1, true)),
                half = run(offloaded(bf16_run(), 0.5, false));
  const int64_t states = of(plain.memory.live, Purpose::optimizer);
  EXPECT_EQ(plain.host.reserved(), 0);
  EXPECT_EQ(of(all.memory.live, Purpose::optimizer), 0);
  EXPECT_EQ(of(all.host.plain.live, Purpose::optimizer), states);
  // Three buffers of 1000 elements, f32 gradients and bf16 weights, and the step's scalars.
  EXPECT_EQ(of(all.host.pinned.live, Purpose::optimizer), 3 * (4096 + 2048) + 256);
  EXPECT_EQ(of(half.host.pinned.live, Purpose::optimizer), 4096 + 2048 + 256);
  EXPECT_NEAR(double(of(half.memory.live, Purpose::optimizer)), double(states) / 2, 0.02 * states);
  EXPECT_EQ(of(half.memory.live, Purpose::optimizer) + of(half.host.plain.live, Purpose::optimizer),
            states);
}

// Host and device round an update differently, and no exchange would mend what drifts apart.
TEST(OffloadedOptimizer, BothStagesCutATiedEmbeddingAtTheSameElement) {
  RunConfig config = bf16_run();
  config.model.num_layers = 4;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 4;
  config.parallel.pipeline_model_parallel_size = 2;
  config.parallel.decoder_first_pipeline_num_layers = 1;  // stages of different size
  for (const bool sharded : {false, true}) {
    for (const double fraction : {0.1, 0.5, 0.8}) {
      SCOPED_TRACE(::testing::Message() << "fraction " << fraction << ", sharded " << sharded);
      RunConfig run = offloaded(config, fraction, true);
      run.parallel.use_distributed_optimizer = sharded;
      const Sources sources(run);
      const Layout layout = make_layout(run.layout(), 4);
      std::map<std::pair<int, int>, std::vector<FlatRange>> on_host;  // (stage, data rank)
      std::map<int, double> share;                                    // by stage
      std::mutex mutex;
      run_thread_ranks(4, {}, [&](World& world) {
        Runtime runtime({.threads = 1});
        const Mesh mesh(world, layout.mesh);
        Session session(run, sources, runtime.device(), mesh);
        const auto tied =
            session.store.ranges([](const Parameter& p) { return p.axes().on_several_stages(); });
        ASSERT_EQ(tied.size(), 1u);
        const std::vector<OptimizerState> states = session.optimizer.states();
        const std::lock_guard lock(mutex);
        on_host[{mesh.pp_rank(), mesh.dp_rank()}] = intersection(states[0].ranges, tied);
        share[mesh.pp_rank()] = double(states[0].flat.numel()) /
                                double(states[0].flat.numel() + states[1].flat.numel());
      });
      for (const int data_rank : {0, 1}) {
        EXPECT_EQ((on_host[{0, data_rank}]), (on_host[{1, data_rank}]));
        EXPECT_FALSE((on_host[{0, data_rank}].empty()));
      }
      // Two cuts, each rounded up to 128 of some 10,000 elements.
      for (const int stage : {0, 1}) EXPECT_NEAR(share[stage], fraction, 0.05);
    }
  }
}

TEST(OffloadedOptimizer, SkipsAStepAsTheDeviceDoes) {
  RunConfig config = offloaded(tiny_run(), 0.5, true);
  config.train.fp16 = true;
  Runtime runtime({.threads = 2});
  Session session(config, runtime.device());
  train(session, 0, 1);
  const auto before = bytes_of(session.store.weights());
  session.train_batches.load(6);
  session.step.run(session.train_batches, {.iteration = 2,
                                           .update = 2,
                                           .lr = 1e-3,
                                           .loss_scale = 4294967296.0 * 65536,
                                           .sticky_skip = false});
  EXPECT_TRUE(session.step.collect().skipped);
  EXPECT_TRUE(before == bytes_of(session.store.weights()));
}

RunConfig with_offloaded_layers(RunConfig config, int64_t layers) {
  config.train.cpu_offloading_num_layers = layers;
  return config;
}

TEST(OffloadedActivations, ChangeNoBit) {
  RunConfig selective = tiny_run();
  selective.train.recompute_granularity = RecomputeGranularity::selective;
  selective.train.recompute_modules = {"core_attn", "layernorm", "activation"};
  for (const RunConfig& config : {tiny_run(), bf16_run(), selective}) {
    const Outcome plain = run(config);
    for (const int64_t layers : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << layers << " layers");
      const Outcome other = run(with_offloaded_layers(config, layers));
      EXPECT_EQ(plain.losses, other.losses);
      EXPECT_TRUE(plain.states == other.states);
      EXPECT_EQ(other.memory.diverged_steps, 0);
      EXPECT_GT(other.memory.replayed_steps, 0);
    }
  }
}

TEST(OffloadedActivations, LeaveTheDevice) {
  RunConfig config = tiny_run();
  config.model.num_layers = 8;
  const auto activations = [&](int64_t layers) {
    const Outcome outcome = run(with_offloaded_layers(config, layers), 4);
    return outcome.memory.arena;
  };
  const int64_t all = activations(0), six = activations(6);
  // At the peak, which is at the end of the forward or shortly after, of 8 layers 2 are kept, and
  // one or two of the others are on their way.
  EXPECT_LT(six, all * 5 / 8);
  EXPECT_GT(six, all / 8);
}

PHX_CUDA_TEST(OffloadedOptimizer, CudaFollowsTheUpdateOnTheDevice) {
  RunConfig config = bf16_run();
  config.model.hidden_size = 256;
  set_16_bit_states(config.optim);
  const RuntimeOptions cuda{.kind = DeviceKind::cuda, .threads = 4, .deterministic = true};
  const Outcome plain = run(config, 8, cuda);
  for (const double fraction : {1.0, 0.5}) {
    const Outcome other = run(offloaded(config, fraction, true), 8, cuda);
    // The CPU's f32 differs from the GPU's in last bits (fused multiply-adds, division), and bf16
    // weights with them; eight steps stay within bf16's noise.
    for (size_t i = 0; i < plain.losses.size(); ++i)
      EXPECT_NEAR(other.losses[i], plain.losses[i], 0.01 * plain.losses[i]) << i;
    EXPECT_TRUE(other.losses == run(offloaded(config, fraction, false), 8, cuda).losses)
        << "overlap changes no bit";
  }
}

PHX_CUDA_TEST(OffloadedActivations, ChangeNoBitOnCuda) {
  RunConfig config = bf16_run();
  config.model.hidden_size = 256;
  config.model.num_layers = 5;
  const RuntimeOptions cuda{.kind = DeviceKind::cuda, .threads = 4, .deterministic = true};
  const Outcome plain = run(config, 8, cuda);
  for (const int64_t layers : {1, 3, 5}) {
    const Outcome other = run(with_offloaded_layers(config, layers), 8, cuda);
    EXPECT_EQ(plain.losses, other.losses) << layers;
    EXPECT_TRUE(plain.states == other.states) << layers;
  }
}

}  // namespace
}  // namespace phx
