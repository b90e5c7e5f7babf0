#include "phalanx/train/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "support/gradients.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

struct Outcome {
  std::vector<double> losses;
  std::vector<char> state;
};

Outcome run(const RunConfig& config, RuntimeOptions options = {.threads = 2}, int64_t steps = 8) {
  Runtime runtime(options);
  Session session(config, runtime.device());
  Outcome outcome;
  outcome.losses = train(session, 0, steps);
  outcome.state = state_bytes(session);
  return outcome;
}

void expect_same_bytes(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_TRUE(a.state == b.state) << "weights or optimizer state differ";
}

RunConfig with_recompute(RecomputeMethod method, int64_t layers) {
  RunConfig config = tiny_run();
  config.train.recompute_granularity = RecomputeGranularity::full;
  config.train.recompute_method = method;
  config.train.recompute_num_layers = layers;
  return config;
}

RunConfig with_selective(std::vector<std::string> modules) {
  RunConfig config = tiny_run();
  config.train.recompute_granularity = RecomputeGranularity::selective;
  config.train.recompute_modules = std::move(modules);
  return config;
}

TEST(Session, TheSameSeedGivesTheSameBytes) { expect_same_bytes(run(tiny_run()), run(tiny_run())); }

TEST(Session, EvaluationDropsNothing) {
  const auto evaluated = [](double dropout) {
    RunConfig config = tiny_run();
    config.model.attention_dropout = config.model.hidden_dropout = dropout;
    Runtime runtime({.threads = 2});
    Session session(config, runtime.device());
    return session.step.evaluate(*session.valid_batches, 0, 2).value();
  };
  EXPECT_EQ(evaluated(0.5), evaluated(0.0));
}

TEST(Session, AnotherSeedGivesOthers) {
  RunConfig other = tiny_run();
  other.train.seed = 4321;
  EXPECT_NE(run(tiny_run()).losses, run(other).losses);
}

TEST(Session, TheNumberOfThreadsChangesNoBit) {
  expect_same_bytes(run(tiny_run(), {.threads = 1}), run(tiny_run(), {.threads = 5}));
}

TEST(Session, RecomputeChangesNoBit) {
  const Outcome plain = run(tiny_run());
  expect_same_bytes(plain, run(with_recompute(RecomputeMethod::uniform, 1)));
  expect_same_bytes(plain, run(with_recompute(RecomputeMethod::uniform, 2)));
  expect_same_bytes(plain, run(with_recompute(RecomputeMethod::block, 2)));
  expect_same_bytes(plain, run(with_selective({"core_attn"})));
  expect_same_bytes(plain, run(with_selective({"core_attn", "mlp"})));
  RunConfig both = with_recompute(RecomputeMethod::block, 1);
  both.train.recompute_modules = {"core_attn", "layernorm", "activation"};
  expect_same_bytes(plain, run(both));
}

TEST(Session, KeepingWhatAttentionComputedChangesNoBit) {
  const Outcome plain = run(tiny_run());
  for (const int64_t layers : {1, 2}) {
    RunConfig keeping = with_recompute(RecomputeMethod::uniform, layers);
    keeping.train.recompute_keep_attention = true;
    expect_same_bytes(plain, run(keeping));
  }
}

TEST(Session, AnMlpInPiecesGivesTheSameGradients) {
  // In fp64 only the order of additions differs, as with micro-batches of other sizes.
  RunConfig whole = tiny_run();
  whole.train.fp64 = true;
  const auto a = run(whole).losses;
  for (const int64_t layers : {0, 1, 2})
    for (const int64_t pieces : {2, 5}) {
      RunConfig tiled = layers > 0 ? with_recompute(RecomputeMethod::uniform, layers) : whole;
      tiled.train.fp64 = true;
      tiled.train.mlp_chunks_for_training = pieces;
      const auto b = run(tiled).losses;
      for (size_t i = 0; i < a.size(); ++i)
        EXPECT_NEAR(a[i], b[i], 1e-12 * a[i])
            << layers << " layers, " << pieces << " pieces, " << i;
    }
}

TEST(Session, TheArenaChangesNoBit) {
  RunConfig plain = tiny_run();
  plain.train.arena = false;
  expect_same_bytes(run(tiny_run()), run(plain));
}

TEST(Session, MicroBatchesOfAnySizeGiveTheSameGradients) {
  // In fp64 only the order of additions differs: 1e-12 leaves room for a thousand roundings.
  RunConfig whole = tiny_run(), split = tiny_run();
  whole.train.fp64 = split.train.fp64 = true;
  whole.train.micro_batch_size = 6;
  split.train.micro_batch_size = 1;
  const auto a = run(whole).losses, b = run(split).losses;
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12 * a[i]) << i;
}

TEST(Session, LearnsInEveryPrecision) {
  RunConfig config = tiny_run();
  config.model.attention_dropout = config.model.hidden_dropout = 0;
  const auto last = [&](const std::function<void(TrainConfig&)>& set) {
    RunConfig copy = config;
    set(copy.train);
    const auto losses = run(copy, {.threads = 2}, 40).losses;
    EXPECT_LT(losses.back(), 0.75 * losses.front());
    return losses.back();
  };
  const double f64 = last([](TrainConfig& t) { t.fp64 = true; });
  EXPECT_NEAR(last([](TrainConfig&) {}), f64, 1e-3 * f64);
  // 16-bit weights and activations: 40 steps drift apart by some roundings of 2^-9 and 2^-12.
  EXPECT_NEAR(last([](TrainConfig& t) { t.bf16 = true; }), f64, 0.1 * f64);
  EXPECT_NEAR(last([](TrainConfig& t) { t.fp16 = true; }), f64, 0.02 * f64);
}

TEST(Session, ALossScaleCancelsOut) {
  RunConfig config = tiny_run();
  const auto losses = [&](double scale) {
    Runtime runtime({.threads = 2});
    Session session(config, runtime.device());
    return train(session, 0, 6, scale);
  };
  EXPECT_EQ(losses(1), losses(1024)) << "a power of two changes exponents only";
}

TEST(Session, AnOverflowSkipsTheUpdateOnTheDevice) {
  RunConfig config = tiny_run();
  config.train.fp16 = true;
  Runtime runtime({.threads = 2});
  Session session(config, runtime.device());
  train(session, 0, 1);
  const auto before = state_bytes(session);
  session.train_batches.load(6);
  session.step.run(session.train_batches, {.iteration = 2,
                                           .update = 2,
                                           .lr = 1e-3,
                                           .loss_scale = 4294967296.0 * 65536,
                                           .sticky_skip = false});
  const StepResults results = session.step.collect();
  EXPECT_TRUE(results.nonfinite);
  EXPECT_TRUE(results.skipped);
  EXPECT_TRUE(before == state_bytes(session));
  session.step.scalars().clear_skip();
  train(session, 2, 3);
  EXPECT_FALSE(before == state_bytes(session)) << "the next good step updates again";
}

// The parameters that one step moves, with the two learning rates as given.
std::set<std::string> moved_by(double lr, double decoupled_lr) {
  RunConfig config = tiny_run();
  config.model.untie_embeddings_and_output_weights = true;
  config.optim.decoupled_lr = 1e-3;
  Runtime runtime({.threads = 2});
  Session session(config, runtime.device());
  std::map<std::string, std::vector<char>> before;
  for (Parameter* p : session.store.parameters()) before[p->name()] = bytes_of(p->value());
  session.train_batches.load(0);
  session.step.run(session.train_batches, {.lr = lr, .decoupled_lr = decoupled_lr});
  session.step.collect();
  std::set<std::string> moved;
  for (Parameter* p : session.store.parameters())
    if (before[p->name()] != bytes_of(p->value())) moved.insert(p->name());
  return moved;
}

TEST(Session, TheSecondLearningRateMovesEmbeddingAndOutputLayerAlone) {
  const std::set<std::string> vocabulary = {"embedding.word_embeddings.weight",
                                            "output_layer.weight"};
  EXPECT_EQ(moved_by(0, 1e-3), vocabulary);
  const std::set<std::string> others = moved_by(1e-3, 0);
  for (const std::string& name : vocabulary) EXPECT_FALSE(others.contains(name)) << name;
  EXPECT_EQ(others.size() + 2, moved_by(1e-3, 1e-3).size());
}

TEST(Session, TwoEqualLearningRatesAreOne) {
  RunConfig config = tiny_run();
  config.optim.decoupled_lr = config.optim.lr;
  expect_same_bytes(run(tiny_run()), run(config));
}

TEST(Session, ASteadyStepTakesNoMemoryAndReplaysItsPlan) {
  Runtime runtime({.threads = 2});
  Session session(tiny_run(), runtime.device());
  train(session, 0, 3);
  const MemoryReport before = runtime.allocator().report();
  EXPECT_GT(before.arena, 0);
  train(session, 3, 13);
  const MemoryReport after = runtime.allocator().report();
  EXPECT_EQ(after.source_allocations, before.source_allocations);
  EXPECT_EQ(after.reserved, before.reserved);
  EXPECT_EQ(after.replayed_steps, before.replayed_steps + 10);
  EXPECT_EQ(after.diverged_steps, 0);
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

TEST(Session, MemoryIsFlatOverAThousandSteps) {
  RunConfig config = tiny_run();
  config.model.num_layers = 1;
  config.model.seq_length = 8;
  config.train.micro_batch_size = config.train.global_batch_size.emplace(1);
  Runtime runtime({.threads = 1});
  Session session(config, runtime.device());
  train(session, 0, 100);
  const int64_t before = resident_bytes(),
                allocations = runtime.allocator().report().source_allocations;
  train(session, 100, 1100);
  EXPECT_EQ(runtime.allocator().report().source_allocations, allocations);
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory aside on purpose
  // A leak of one small object a step would be 64 kB; the heap itself may move by a few pages.
  EXPECT_LE(resident_bytes() - before, 64 * 1024);
#endif
}

TEST(Session, BatchesOfTwoSizesShareTheArenaAndTheBits) {
  RunConfig config = tiny_run();
  config.train.global_batch_size = {};
  config.train.step_batch_size_schedule = "0:4 480:8 1056:4";  // 5 steps, 3 steps, the rest
  const auto trained = [&](bool arena) {
    config.train.arena = arena;
    Runtime runtime({.threads = 1});
    Session session(config, runtime.device());
    for (int64_t i = 0; i < 10; ++i) {
      session.load_batch(session.batch_schedule.after(0, i));
      EXPECT_EQ(session.train_batches.num_micro_batches(), i >= 5 && i < 8 ? 4 : 2);
      session.step.run(session.train_batches, {.iteration = i + 1, .update = i + 1, .lr = 1e-3});
      session.step.collect();
    }
    const MemoryReport report = runtime.allocator().report();
    EXPECT_EQ(report.diverged_steps, 0);
    EXPECT_EQ(report.replayed_steps >= 5, arena) << report.replayed_steps << " of 10";
    return state_bytes(session);
  };
  EXPECT_TRUE(trained(true) == trained(false));
}

void expect_meta_equals_cpu(RunConfig config) {
  Runtime cpu({.threads = 2}), meta({.kind = DeviceKind::meta, .target = DeviceKind::cpu});
  Session real(config, cpu.device()), planned(config, meta.device());
  for (int64_t i = 0; i < 4; ++i) {
    for (Session* session : {&real, &planned}) {
      session->train_batches.load(i * 6);
      session->step.run(session->train_batches, {.iteration = i + 1, .update = i + 1, .lr = 1e-3});
    }
    real.step.collect();
    planned.step.forget();
  }
  real.step.evaluate(*real.valid_batches, 0, 2);
  planned.step.evaluate(*planned.valid_batches, 0, 2);
  const MemoryReport a = cpu.allocator().report(), b = meta.allocator().report();
  EXPECT_EQ(a.peak_total, b.peak_total);
  for (int i = 0; i < kNumPurposes; ++i) {
    const char* purpose = name(static_cast<Purpose>(i));
    EXPECT_EQ(a.peak[i], b.peak[i]) << "peak of " << purpose;
    EXPECT_EQ(a.at_peak[i], b.at_peak[i]) << "at the peak, " << purpose;
    EXPECT_EQ(a.live[i], b.live[i]) << "kept, " << purpose;
  }
  EXPECT_EQ(a.arena, b.arena);
  EXPECT_EQ(a.reserved, b.reserved);
  EXPECT_GT(meta.cost().flops, 0);
}

TEST(Session, AMetaRunReportsTheCpusMemoryToTheByte) {
  expect_meta_equals_cpu(tiny_run());
  expect_meta_equals_cpu(with_recompute(RecomputeMethod::uniform, 1));
  expect_meta_equals_cpu(with_selective({"core_attn", "mlp"}));
  RunConfig bf16 = tiny_run();
  bf16.train.bf16 = true;
  expect_meta_equals_cpu(bf16);
  RunConfig gpt2 = tiny_run();
  gpt2.model.position_embedding_type = PositionEmbedding::learned_absolute;
  gpt2.model.normalization = Normalization::LayerNorm;
  gpt2.model.swiglu = gpt2.model.qk_layernorm = false;
  gpt2.model.add_bias_linear = true;
  expect_meta_equals_cpu(gpt2);
}

void expect_meta_counts_the_formula(RunConfig config) {
  config.model.num_layers = 2;
  config.model.hidden_size = 256;
  config.model.ffn_hidden_size = 768;
  config.model.seq_length = config.model.max_position_embeddings = 128;
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cpu});
  Session session(config, meta.device());
  const int64_t before = meta.cost().flops;
  session.step.run(session.train_batches, {});
  const double counted = double(meta.cost().flops - before);
  const double formula = training_flops_of_batch(flops_shape(config.model), 6, 128);
  // The formula leaves out norms, activations and the optimizer, and halves attention for causality
  // without the diagonal.
  EXPECT_GT(counted, formula);
  EXPECT_LT(counted, 1.15 * formula);
}

TEST(Session, MetaCountsTheFlopsOfTheFormula) { expect_meta_counts_the_formula(tiny_run()); }

TEST(Session, AlsoThoseOfLatentAttention) {
  RunConfig config = tiny_run();
  config.model.group_query_attention = false;
  config.model.latent = {.multi_latent_attention = true,
                         .q_lora_rank = 96,
                         .kv_lora_rank = 64,
                         .qk_head_dim = 32,
                         .qk_pos_emb_head_dim = 16,
                         .v_head_dim = 24,
                         .rope_type = {}};
  expect_meta_counts_the_formula(config);
}

PHX_CUDA_TEST(Session, DeterministicModeGivesTheSameBytesTwiceOnCuda) {
  for (bool bf16 : {false, true}) {
    RunConfig config = tiny_run();
    config.train.bf16 = bf16;
    config.model.hidden_size = 256;
    const RuntimeOptions options{.kind = DeviceKind::cuda, .deterministic = true};
    const Outcome plain = run(config, options);
    expect_same_bytes(plain, run(config, options));
    RunConfig recomputed = config, no_arena = config;
    recomputed.train.recompute_granularity = RecomputeGranularity::full;
    recomputed.train.recompute_method = RecomputeMethod::uniform;
    recomputed.train.recompute_num_layers = 1;
    expect_same_bytes(plain, run(recomputed, options));
    no_arena.train.arena = false;
    expect_same_bytes(plain, run(no_arena, options));
  }
}

PHX_CUDA_TEST(Session, CudaFollowsTheCpuInSinglePrecision) {
  RunConfig config = tiny_run();  // with dropout: the masks are the same on both
  const auto cpu = run(config).losses, cuda = run(config, {.kind = DeviceKind::cuda}).losses;
  // f32 sums in another order, eight steps of Adam, which divides by small roots at first.
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(cuda[i], cpu[i], 1e-4 * cpu[i]) << i;
}

}  // namespace
}  // namespace phx
