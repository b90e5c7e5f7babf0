// Checkpoints under layouts: what one wrote another reads, bit for bit, and training goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <random>

#include "checkpoint/checkpoint_model.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/train/load_session.h"
#include "phalanx/train/save_session.h"
#include "phalanx/train/trainer.h"
#include "support/faulty_disk.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;

struct RankLayout {
  ParallelConfig parallel;
  int world = 1;
};

RunConfig base_run() {
  RunConfig config = tiny_run();
  config.model.num_layers = 4;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 8;
  return config;
}

std::string describe(const RankLayout& layout) {
  const ParallelConfig& p = layout.parallel;
  return str_cat("TP ", p.tensor_model_parallel_size, " CP ", p.context_parallel_size, " PP ",
                 p.pipeline_model_parallel_size, " VPP ",
                 p.num_virtual_stages_per_pipeline_rank.value_or(1), " world ", layout.world, " ",
                 option_names(Sharding{})[size_t(p.sharding())], p.sequence_parallel ? " SP" : "",
                 p.overlap_grad_reduce ? " buckets" : "");
}

// None: more than 8 ranks, or they do not train this model.
std::optional<RankLayout> layout_of(const RunConfig& config, const AxisSizes& sizes, int64_t vpp,
                                    Sharding sharding) {
  const bool zero = sharding == Sharding::optim;
  RankLayout layout;
  ParallelConfig& p = layout.parallel;
  p.tensor_model_parallel_size = sizes.tp;
  p.pipeline_model_parallel_size = sizes.pp;
  p.context_parallel_size = sizes.cp;
  p.cp_comm_type = {sizes.tp == 1 && sizes.cp == 2 ? "a2a" : "p2p"};
  if (vpp > 1) p.num_virtual_stages_per_pipeline_rank = vpp;
  p.use_distributed_optimizer = zero;
  p.use_megatron_fsdp = sharding > Sharding::optim;
  p.data_parallel_sharding_strategy = sharding;
  // Two groups of two with all shards each.
  if (sizes.dp == 4 && p.use_megatron_fsdp) p.num_distributed_optimizer_instances = 2;
  p.sequence_parallel = sizes.tp == 2;
  p.overlap_grad_reduce = p.overlap_param_gather = zero && sizes.dp == 4;
  if (p.overlap_grad_reduce) p.ddp_bucket_size = 3000;  // shards of several buckets
  layout.world = sizes.world();
  if (layout.world > 8 || (sharding != Sharding::no_shard && sizes.dp * sizes.cp == 1)) return {};
  if (!layout_problems({config.model, p, config.train}, layout.world).empty()) return {};
  return layout;
}

// Every layout of at most 8 ranks that trains this model.
std::vector<RankLayout> all_layouts(const RunConfig& config) {
  std::vector<RankLayout> layouts;
  for (const int tp : {1, 2, 4})
    for (const int pp : {1, 2, 4})
      for (const int64_t vpp : {1, 2})
        for (const int cp : {1, 2})
          for (const int dp : {1, 2, 4})
            for (const Sharding sharding : {Sharding::no_shard, Sharding::optim,
                                            Sharding::optim_grads, Sharding::optim_grads_params})
              if (const auto layout =
                      layout_of(config, {.tp = tp, .cp = cp, .dp = dp, .pp = pp}, vpp, sharding))
                layouts.push_back(*layout);
  return layouts;
}

void on_ranks(RunConfig config, const RankLayout& ranks,
              const std::function<void(Session&)>& body) {
  config.parallel = ranks.parallel;
  const Sources sources(config);
  const Layout layout = make_layout(config.layout(), ranks.world);
  run_thread_ranks(ranks.world, {}, [&](World& world) {
    Runtime runtime({.threads = 1});
    const Mesh mesh(world, layout.mesh);
    Session session(config, sources, runtime.device(), mesh);
    body(session);
  });
}

double step(Session& session, RunState& state) {
  session.load_batch(state.consumed_samples);
  session.step.run(session.train_batches, {.iteration = state.iteration + 1,
                                           .update = state.updates + 1,
                                           .lr = 3e-3,
                                           .weight_decay = 0.1});
  const StepResults results = session.step.collect();
  session.data_parallel.wait_for_weights();
  ++state.iteration;
  ++state.updates;
  state.consumed_samples += session.batch_schedule.size_at(0);
  return results.loss_sum / results.tokens;
}

std::map<std::string, std::vector<std::byte>> saved(const Path& folder, int64_t iteration) {
  return all_bytes(NativeCheckpoint(checkpoint_path(folder, iteration)));
}

// From layout to layout: load, save at once (the same bits), train a step, save for the next.
// Returns the losses of the steps.
std::vector<double> chain(RunConfig config, const std::vector<RankLayout>& layouts) {
  const TempFolder folder;
  const std::string kept = (folder / "kept").string(), again = (folder / "again").string();
  std::vector<double> losses(layouts.size());
  for (size_t hop = 0; hop < layouts.size(); ++hop) {
    SCOPED_TRACE(str_cat("hop ", hop, ": ", describe(layouts[hop])));
    config.train.load = hop == 0 ? "" : kept;
    on_ranks(config, layouts[hop], [&](Session& session) {
      RunState state;
      if (const auto loaded = load_session(session)) {
        state = *loaded->state;
        save_session(again, session, state);
      }
      const double loss = step(session, state);
      if (session.mesh.rank() == 0) losses[hop] = loss;
      save_session(kept, session, state);
    });
    if (hop > 0) {
      EXPECT_TRUE(saved(kept, int64_t(hop)) == saved(again, int64_t(hop)))
          << "tensors changed on the way from " << describe(layouts[hop - 1]);
    }
  }
  return losses;
}

std::vector<RankLayout> random_layouts(size_t count, unsigned seed) {
  const auto all = all_layouts(base_run());
  EXPECT_GE(all.size(), 25u);
  std::mt19937 random(seed);
  std::vector<RankLayout> layouts;
  while (layouts.size() < count) layouts.push_back(all[random() % all.size()]);
  return layouts;
}

TEST(Reshard, ThirtyRandomPairsOfLayoutsKeepEveryBitOfWeightsMastersAndMoments) {
  RunConfig config = base_run();
  config.train.bf16 = true;
  const auto losses = chain(config, random_layouts(31, 1));
  EXPECT_LT(losses.back(), 0.9 * losses.front()) << "31 steps learn something";
}

TEST(Reshard, RanksThatShareSequencesReadWhatAnyNumberOfThemWrote) {
  RunConfig config = base_run();
  config.train.fp64 = true;
  std::vector<RankLayout> layouts;
  for (const int cp : {1, 4, 2, 3, 1, 2})
    layouts.push_back(*layout_of(config, {.tp = cp == 2 ? 2 : 1, .cp = cp, .pp = cp == 3 ? 2 : 1},
                                 1, cp == 1 ? Sharding::no_shard : Sharding::optim));
  const auto losses = chain(config, layouts);
  const auto truth = chain(config, std::vector<RankLayout>(layouts.size()));
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], truth[i], 1e-10 * truth[i]) << i;
}

TEST(Reshard, TheLossGoesOnAsIfTheLayoutHadNeverChanged) {
  RunConfig config = base_run();
  config.train.fp64 = true;
  config.model.untie_embeddings_and_output_weights = true;
  const size_t steps = 10;
  const auto losses = chain(config, random_layouts(steps, 2));
  const auto truth = chain(config, std::vector<RankLayout>(steps));
  // Only the order of additions differs, in fp64; Adam divides small gradients by small roots.
  for (size_t i = 0; i < steps; ++i) EXPECT_NEAR(losses[i], truth[i], 1e-9 * truth[i]) << i;
}

TEST(Reshard, MomentsOf16BitsAreRoundedAlikeUnderEveryLayout) {
  RunConfig config = base_run();
  config.train.bf16 = true;
  config.optim.use_precision_aware_optimizer = true;
  config.optim.exp_avg_dtype = config.optim.exp_avg_sq_dtype = StateDType::bf16;
  // These layouts add gradients in the same order, so that nothing but the rounding could differ:
  // norms are summed in another one, and so are the two ends of a tied embedding.
  config.optim.clip_grad = 0;
  config.model.untie_embeddings_and_output_weights = true;
  const auto trained = [&](const RankLayout& layout) {
    const TempFolder folder;
    on_ranks(config, layout, [&](Session& session) {
      RunState state;
      for (int i = 0; i < 3; ++i) step(session, state);
      save_session(folder.path(), session, state);
    });
    return saved(folder.path(), 3);
  };
  for (const int64_t tp : {1, 2}) {
    RankLayout plain{.parallel = {}, .world = int(2 * tp)};  // DP 2
    plain.parallel.tensor_model_parallel_size = tp;
    RankLayout sharded = plain, stages = plain, chunks = plain;
    sharded.parallel.use_distributed_optimizer = true;
    sharded.parallel.overlap_grad_reduce = sharded.parallel.overlap_param_gather = true;
    sharded.parallel.ddp_bucket_size = 3000;
    for (RankLayout* layout : {&stages, &chunks}) {
      layout->parallel.pipeline_model_parallel_size = 2;
      layout->world *= 2;
    }
    chunks.parallel.num_virtual_stages_per_pipeline_rank = 2;
    chunks.parallel.use_distributed_optimizer = true;
    const auto truth = trained(plain);
    ASSERT_TRUE(truth.contains("optimizer.exp_avg.decoder.layers.3.mlp.linear_fc2.weight"));
    for (const RankLayout& layout : {sharded, stages, chunks})
      EXPECT_TRUE(trained(layout) == truth) << describe(layout);
  }
}

struct Ran {
  RunEnd end = RunEnd::finished;
  double loss = 0;
};

Ran run_trainers(const RunConfig& config, const RankLayout& ranks, Disk* disk = &Disk::real()) {
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  Ran ran;
  on_ranks(config, ranks, [&](Session& session) {
    Terminal terminal(nowhere, nowhere, TerminalMode::silent);
    const bool first = session.mesh.rank() == 0;
    Trainer trainer(session, terminal,
                    {.catches_signals = first, .disk = disk, .measures_peak = false});
    const RunEnd end = trainer.run();
    if (first) ran = {end, trainer.last_loss()};
  });
  std::fclose(nowhere);
  return ran;
}

TEST(Reshard, TwentyIterationsEqualTenSavedAndTenResumedOnEveryKindOfLayout) {
  const auto all = all_layouts(base_run());
  for (const size_t pick : {size_t{0}, all.size() / 4, all.size() / 2, all.size() - 2}) {
    SCOPED_TRACE(describe(all[pick]));
    const TempFolder folder;
    RunConfig whole = base_run();
    whole.train.bf16 = true;
    whole.train.train_iters = 20;
    whole.optim.lr_decay_iters = 20;
    whole.train.async_save = pick % 2 == 0;
    RunConfig first = whole, second = whole;
    whole.train.save = (folder / "whole").string();
    first.train.save = second.train.save = second.train.load = (folder / "parts").string();
    first.train.exit_interval = 10;
    const Ran in_one = run_trainers(whole, all[pick]);
    EXPECT_EQ(run_trainers(first, all[pick]).end, RunEnd::stopped_early);
    const Ran in_two = run_trainers(second, all[pick]);
    EXPECT_EQ(in_one.loss, in_two.loss);
    EXPECT_TRUE(saved(folder / "whole", 20) == saved(folder / "parts", 20));
  }
}

TEST(Reshard, SavingInTheBackgroundChangesNoBitOfCheckpointsOrTraining) {
  const TempFolder folder;
  RunConfig now = base_run(), later = base_run();
  now.train.train_iters = later.train.train_iters = 8;
  now.train.save_interval = later.train.save_interval = 2;
  now.train.save = (folder / "now").string();
  later.train.save = (folder / "later").string();
  later.train.async_save = true;
  FaultyDisk slow;
  slow.delay = std::chrono::milliseconds(5);
  const RankLayout layout = all_layouts(base_run()).back();
  EXPECT_EQ(run_trainers(now, layout).loss, run_trainers(later, layout, &slow).loss);
  for (const int64_t iteration : {2, 4, 6, 8})
    EXPECT_TRUE(saved(folder / "now", iteration) == saved(folder / "later", iteration))
        << iteration;
}

// The state is larger than the memory that it is copied to, and the disk is slow: the next update
// comes long before everything is copied, and has to wait.
TEST(Reshard, AnUpdateWaitsForWhatIsStillBeingCopied) {
  const TempFolder folder;
  RunConfig now = base_run(), later = base_run();
  now.model.vocab_size = later.model.vocab_size = 80000;  // 31 MB with moments, through 16 MiB
  now.train.global_batch_size = later.train.global_batch_size = 1;
  now.train.train_iters = later.train.train_iters = 2;
  now.train.save_interval = later.train.save_interval = 1;
  now.train.save = (folder / "now").string();
  later.train.save = (folder / "later").string();
  later.train.async_save = true;
  later.train.save_buffer_mib = 16;
  FaultyDisk slow;
  slow.delay = std::chrono::milliseconds(400);
  run_trainers(now, {});
  run_trainers(later, {}, &slow);
  EXPECT_TRUE(saved(folder / "now", 1) == saved(folder / "later", 1));
}

TEST(Reshard, ABackgroundErrorStopsTheRunAndNamesTheFile) {
  const TempFolder folder;
  RunConfig config = base_run();
  config.train.train_iters = 1000;
  config.train.save_interval = 2;
  config.train.async_save = true;
  config.train.save = folder.path();
  FaultyDisk full;
  full.fail_from = 150;  // some checkpoints are there by then
  full.error = ENOSPC;
  full.only_writes = true;
  const std::string message =
      error_of([&] { run_trainers(config, all_layouts(base_run())[5], &full); });
  EXPECT_THAT(message, HasSubstr(folder.path().string()));
  EXPECT_THAT(message, HasSubstr("the disk is full"));
  const auto latest = latest_checkpoint(folder.path());
  ASSERT_TRUE(latest.has_value());
  NativeCheckpoint(checkpoint_path(folder.path(), *latest)).verify();
}

TEST(Reshard, ASignalSavesOnAllRanksAndStops) {
  const TempFolder folder;
  RunConfig config = base_run();
  config.train.train_iters = 100000;
  config.train.save = folder.path();
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  on_ranks(config, all_layouts(base_run()).back(), [&](Session& session) {
    Terminal terminal(nowhere, nowhere, TerminalMode::silent);
    const bool first = session.mesh.rank() == 0;
    Trainer trainer(session, terminal, {.catches_signals = first});
    if (first) std::raise(SIGUSR1);
    EXPECT_EQ(trainer.run(), RunEnd::stopped_by_signal);
    EXPECT_EQ(latest_checkpoint(folder.path()), trainer.state().iteration);
  });
  std::fclose(nowhere);
}

TEST(Reshard, ADamagedCheckpointIsRefusedAndTheNewestWholeOneIsTakenOnlyWhenTold) {
  const TempFolder folder;
  RunConfig config = base_run();
  config.train.train_iters = 4;
  config.train.save_interval = 2;
  config.train.save = folder.path();
  const RankLayout layout = all_layouts(base_run())[7];
  run_trainers(config, layout);
  const Path shard = checkpoint_path(folder.path(), 4) / "shard_00000.safetensors";
  std::string bytes = read_file(shard);
  bytes[bytes.size() / 2] ^= 16;
  write_file(shard, bytes);
  config.train.save = "";
  config.train.load = folder.path();
  EXPECT_THAT(error_of([&] { run_trainers(config, layout); }), HasSubstr(shard.string()));
  config.train.load_newest_valid = true;
  on_ranks(config, layout, [&](Session& session) {
    const auto loaded = load_session(session);
    ASSERT_TRUE(loaded && loaded->state);
    EXPECT_EQ(loaded->state->iteration, 2);
  });
}

TEST(Reshard, AnotherSeedIsRefusedUnlessTheRngIsNotLoaded) {
  const TempFolder folder;
  RunConfig config = base_run();
  config.train.train_iters = 1;
  config.train.save = folder.path();
  run_trainers(config, {});
  config.train.save = "";
  config.train.load = folder.path();
  config.train.seed = 77;
  config.train.train_iters = 2;
  config.optim.override_opt_param_scheduler = true;
  EXPECT_THAT(error_of([&] { run_trainers(config, {}); }),
              HasSubstr("was made with --seed 1234, and --seed 77 is given now"));
  config.train.load_rng = false;
  EXPECT_EQ(run_trainers(config, {}).end, RunEnd::finished);
}

}  // namespace
}  // namespace phx
