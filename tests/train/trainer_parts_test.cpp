// Ranks that hold parts of the state, of which one fails in the middle of a run: each writes its
// part, and they become a checkpoint, if all are of the same iteration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "train/faulty_runs.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Cut {
  const char* name;
  int64_t tp, pp;
  bool sharded;
  bool overlap = false;
  bool fsdp = false;
};
std::ostream& operator<<(std::ostream& out, const Cut& cut) { return out << cut.name; }

RunConfig cut_run(const Path& folder, const Cut& cut) {
  RunConfig config = two_ranks(folder);
  config.model.num_layers = 4;
  config.parallel.tensor_model_parallel_size = cut.tp;
  config.parallel.pipeline_model_parallel_size = cut.pp;
  config.parallel.use_distributed_optimizer = cut.sharded;
  config.parallel.use_torch_fsdp2 = cut.fsdp;
  config.parallel.overlap_grad_reduce = config.parallel.overlap_param_gather = cut.overlap;
  config.train.train_iters = 8;
  return config;
}

// Samples of iteration 6 are 30 .. 35.
void rank_one_fails(int rank, Sources& sources) {
  sources.train = std::make_shared<Displaced>(sources.train, rank == 1 ? 30 : 1000000);
}
void nothing_fails(int, Sources& sources) {
  sources.train = std::make_shared<Displaced>(sources.train, 1000000);
}

// What an asynchronous save has left is no part.
void expect_no_parts(const Path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("parts")));
}

class PartsOfRanks : public ::testing::TestWithParam<Cut> {};

TEST_P(PartsOfRanks, AreACheckpointFromWhichTheRunGoesOnToTheByte) {
  for (const bool async : {false, true}) {
    const TempFolder folder, clean;
    RunConfig config = cut_run(folder.path(), GetParam());
    config.train.async_save = async;
    if (async) config.train.save_interval = 2;
    EXPECT_THAT(error_of([&] { run_two(config, rank_one_fails); }),
                HasSubstr("the table has 24 positions"));
    ASSERT_EQ(latest_checkpoint(folder.path()), 5);
    NativeCheckpoint(checkpoint_path(folder.path(), 5)).verify();
    expect_no_parts(folder.path());

    config.train.load = folder.path();
    run_two(config, nothing_fails);
    RunConfig whole = cut_run(clean.path(), GetParam());
    run_two(whole, nothing_fails);
    const NativeCheckpoint resumed(checkpoint_path(folder.path(), 8)),
        uninterrupted(checkpoint_path(clean.path(), 8));
    EXPECT_TRUE(differences(resumed, uninterrupted).empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PartsOfRanks,
                         ::testing::Values(Cut{"TP2", 2, 1, false}, Cut{"PP2", 1, 2, false},
                                           Cut{"ZeRO1", 1, 1, true},
                                           Cut{"ZeRO1Overlap", 1, 1, true, true},
                                           Cut{"FSDP", 1, 1, false, false, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(TrainerParts, AllRanksMayFailAtOnce) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] {
                run_two(cut_run(folder.path(), {"TP2", 2, 1, false}), [](int, Sources& sources) {
                  sources.train = std::make_shared<Displaced>(sources.train, 30);
                });
              }),
              HasSubstr("the table has 24 positions"));
  EXPECT_EQ(latest_checkpoint(folder.path()), 5);
}

TEST(TrainerParts, AStateThatIsSavedAlreadyIsNotSavedAgain) {
  const TempFolder folder;
  RunConfig config = cut_run(folder.path(), {"TP2", 2, 1, false});
  config.train.save_interval = 5;
  // Warnings go to either, as the tests before this one in the process left it.
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  EXPECT_THAT(error_of([&] { run_two(config, rank_one_fails); }),
              HasSubstr("the table has 24 positions"));
  EXPECT_THAT(::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("the last good state is iteration 5, saved in "),
                    Not(HasSubstr("wrote its part"))));
  EXPECT_EQ(checkpoints_in(folder.path()), std::vector<int64_t>{5});
}

// The ranks of these tests are threads.
thread_local int this_rank = 0;
thread_local int pieces_of_update_6 = 0;

// The words of a run in which rank 1 fails while it updates in iteration 6.
std::string words_of_a_failing_update(RunConfig config) {
  for (UpdateRule& rule : config.catalogue.optimizers) {
    const auto update = rule.update;
    rule.update = [update](const UpdateCall& call, const OwnOptions& options) {
      const bool sixth = call.scalars.data<double>()[size_t(Slot::step)] == 6;
      PHX_CHECK(this_rank != 1 || !sixth || ++pieces_of_update_6 < 2, "no memory for an update");
      update(call, options);
    };
  }
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const std::string error = error_of([&] {
    run_two(config, [](int rank, Sources& sources) {
      this_rank = rank;
      pieces_of_update_6 = 0;
      nothing_fails(rank, sources);
    });
  });
  EXPECT_THAT(error, HasSubstr("no memory for an update"));
  return ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
}

// Both ranks are between iterations 5 and 6 with sharded optimizers: rank 0 waits for weights.
TEST(TrainerParts, AStateBetweenTwoIterationsIsNotSaved) {
  const TempFolder folder;
  RunConfig config = cut_run(folder.path(), {"ZeRO1", 1, 1, true});
  config.train.save_interval = 4;
  EXPECT_THAT(words_of_a_failing_update(config),
              AllOf(HasSubstr("the state of iteration 5 is not saved: "),
                    HasSubstr("rank 0 had begun the update of iteration 6"),
                    HasSubstr("rank 1 had begun the update of iteration 6"),
                    HasSubstr("the last checkpoint is still that of iteration 4")));
  EXPECT_EQ(checkpoints_in(folder.path()), std::vector<int64_t>{4});
  expect_no_parts(folder.path());
}

// Rank 0 has made the whole update of iteration 6 when rank 1 fails in it.
TEST(TrainerParts, AHalfMadeUpdateOfOneRankIsNotSaved) {
  const TempFolder folder;
  EXPECT_THAT(words_of_a_failing_update(cut_run(folder.path(), {"TP2", 2, 1, false})),
              AllOf(HasSubstr("the state of iteration 6 is not saved: "),
                    HasSubstr("rank 1 had begun the update of iteration 6"),
                    HasSubstr("there is no checkpoint yet")));
  EXPECT_TRUE(checkpoints_in(folder.path()).empty());
  expect_no_parts(folder.path());
}

}  // namespace
}  // namespace phx
