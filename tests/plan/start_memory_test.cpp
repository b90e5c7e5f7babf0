// What ranks take to start from a checkpoint, beside what is planned: of their device to the byte,
// of the host no more than the bound.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/plan/run_plan.h"
#include "phalanx/train/load_session.h"
#include "phalanx/train/save_session.h"
#include "support/anonymous_memory.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

RunConfig sharded_run(Sharding sharding) {
  RunConfig config = tiny_run();
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 8;
  config.parallel.use_megatron_fsdp = sharding != Sharding::no_shard;
  config.parallel.data_parallel_sharding_strategy = sharding;
  return config;
}

void on_ranks(const RunConfig& config, int world,
              const std::function<void(Session&, Runtime&)>& body) {
  const Sources sources(config);
  const Layout layout = make_layout(config.layout(), world);
  run_thread_ranks(world, {}, [&](World& ranks) {
    Runtime runtime({.threads = 1});
    const Mesh mesh(ranks, layout.mesh);
    Session session(config, sources, runtime.device(), mesh);
    body(session, runtime);
  });
}

// Of its first session.
void save_start(RunConfig& config, int world, const Path& folder) {
  config.train.save = folder.string();
  on_ranks(config, world, [&](Session& session, Runtime&) {
    save_session(folder, session, {.iteration = 1, .consumed_samples = 8});
  });
  config.train.load = folder.string();
}

// Its state is in place from the beginning; all that a load takes of the device beside is what
// ranks compare their checkpoints with.
TEST(StartMemory, ALoadedRankHoldsWhatIsPlannedToTheByte) {
  for (const Sharding sharding :
       {Sharding::no_shard, Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    SCOPED_TRACE(option_names(Sharding{})[size_t(sharding)]);
    const TempFolder folder;
    RunConfig config = sharded_run(sharding);
    constexpr int kWorld = 4;
    save_start(config, kWorld, folder.path());
    on_ranks(config, kWorld, [&](Session& session, Runtime& runtime) {
      ASSERT_TRUE(load_session(session));
      const MemoryReport real = runtime.allocator().report();
      const int rank = session.mesh.rank();
      const MemoryReport planned =
          plan_rank(config, kWorld, rank, {.target = DeviceKind::cpu}).start.device;
      EXPECT_EQ(real.live, planned.live);
      // An own checksum and those of all ranks, and as much for the exchange on a CPU.
      EXPECT_GE(real.peak_total, planned.peak_total);
      EXPECT_LE(real.peak_total, planned.peak_total + 4 * Allocator::kGranule);
    });
  }
}

// Large enough that a rank with all of the weights, or all of its own share twice, would be seen.
RunConfig large_run() {
  RunConfig config = sharded_run(Sharding::optim_grads_params);
  config.model.num_layers = 2;
  config.model.hidden_size = 1024;
  config.model.num_attention_heads = 8;
  config.model.ffn_hidden_size = 4096;
  return config;
}

TEST(StartMemory, ACheckpointListsNoMorePiecesThanPlannedAndNotFarLess) {
  const auto on_two_stages = [](RunConfig& config) {
    config.parallel.pipeline_model_parallel_size = 2;
    config.model.untie_embeddings_and_output_weights = true;
    config.model.num_layers = 4;
  };
  const auto of_columns = [](RunConfig& config) {
    config.parallel.tensor_model_parallel_size = 2;
    config.train.bf16 = true;
  };
  const auto in_copies = [](RunConfig& config) {
    config.parallel.num_distributed_optimizer_instances = 2;
    config.parallel.outer_dp_sharding_strategy = OuterSharding::optim;
  };
  using Set = std::function<void(RunConfig&)>;
  for (const Set& set :
       {Set([](RunConfig&) {}), Set(on_two_stages), Set(of_columns), Set(in_copies)}) {
    const TempFolder folder;
    RunConfig config = sharded_run(Sharding::optim_grads_params);
    set(config);
    save_start(config, 4, folder.path());
    const NativeCheckpoint saved(checkpoint_path(folder.path(), 1));
    ListedPieces real, planned;
    for (const auto& [name, tensor] : saved.manifest().tensors)
      for (const SavedPiece& piece : tensor.pieces) {
        ++real.pieces;
        real.blocks += int64_t(piece.hashes.size());
      }
    for (const RankPlan& rank : plan_run(config, 4, {.target = DeviceKind::cpu}).stages) {
      planned.pieces += rank.start.listed_of_stage.pieces;
      planned.blocks += rank.start.listed_of_stage.blocks;
    }
    EXPECT_LE(real.pieces, planned.pieces);
    EXPECT_LE(real.blocks, planned.blocks);
    EXPECT_GT(real.pieces, planned.pieces / 4);
  }
}

// All ranks' load, beside what they hold.
int64_t host_memory_of_load(const RunConfig& config, int world) {
  std::optional<AnonymousMemory> memory;
  int64_t taken = 0;
  on_ranks(config, world, [&](Session& session, Runtime&) {
    Communicator& all = *session.mesh.world();
    all.barrier();
    if (all.rank() == 0) memory.emplace();
    all.barrier();
    EXPECT_TRUE(load_session(session));
    all.barrier();
    if (all.rank() == 0) taken = memory->peak_beside();
  });
  return taken;
}

void expect_within_bound(RunConfig config, const std::function<void(RunConfig&)>& set,
                         LoadFrom from) {
  if (!kMemoryIsMeasured) GTEST_SKIP() << "a sanitizer's memory is not the program's";
  const TempFolder folder;
  constexpr int kWorld = 2;
  save_start(config, kWorld, folder.path());
  set(config);
  const RunPlan plan = plan_run(config, kWorld, {.target = DeviceKind::cpu});
  const StartMemory& start = plan.stages[0].start;
  const int64_t bound =
      most_read_memory(DeviceKind::cpu, from) + most_manifest_memory(start.listed_of_stage);
  const int64_t taken = host_memory_of_load(config, kWorld);
  EXPECT_LE(taken, kWorld * bound);
  EXPECT_LT(taken, start.device.live[size_t(Purpose::optimizer)])
      << "the test is of no use: less than a rank's share is much";
  ::testing::Test::RecordProperty("bytes", std::to_string(taken));
}

TEST(StartMemory, RanksWithPiecesOfRowsLoadWithinTheBound) {
  expect_within_bound(
      large_run(), [](RunConfig&) {}, LoadFrom::native);
}

// Whose matrices come through buffers, where they are cut by columns.
TEST(StartMemory, RanksWithColumnsLoadWithinTheBound) {
  expect_within_bound(
      large_run(),
      [](RunConfig& config) {
        config.parallel.use_megatron_fsdp = false;
        config.parallel.tensor_model_parallel_size = 2;
      },
      LoadFrom::native);
}

TEST(StartMemory, AnImportIntoPiecesStaysWithinTheBound) {
  RunConfig config = large_run();
  config.model.qk_layernorm = false;
  config.model.attention_dropout = config.model.hidden_dropout = 0;
  const TempFolder hf;
  expect_within_bound(
      config,
      [&](RunConfig& loads) {
        export_session(hf / "hf", loads, 1);
        loads.train.load = (hf / "hf").string();
        loads.train.bf16 = true;
      },
      LoadFrom::import);
}

}  // namespace
}  // namespace phx
