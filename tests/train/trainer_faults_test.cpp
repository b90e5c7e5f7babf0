// Runs that end badly: what can be saved is saved, and it is the state after the last good
// iteration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/faulty_runs.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TrainerFaults, DataThatCannotBeReadSavesTheLastGoodStateFirst) {
  const TempFolder folder;
  const RunConfig config = saving(folder.path());
  Sources sources(config);
  sources.train = std::make_shared<Failing>(sources.train, 30);
  EXPECT_THAT(error_of([&] { run(config, sources); }),
              AllOf(HasSubstr("sample 30 is gone"),
                    HasSubstr("the last good state is iteration 5, saved in " +
                              checkpoint_path(folder.path(), 5).string())));
  expect_state_after(config, folder.path(), 5);
}

// Any other error of a rank that is alone: the weights are those of the last good iteration.
TEST(TrainerFaults, AnErrorInTheMiddleOfAStepSavesTheLastGoodStateFirst) {
  const TempFolder folder;
  const RunConfig config = saving(folder.path());
  Sources sources(config);
  sources.train = std::make_shared<Displaced>(sources.train, 30);
  EXPECT_THAT(error_of([&] { run(config, sources); }),
              AllOf(HasSubstr("the table has 24 positions"),
                    HasSubstr("the last good state is iteration 5, saved in " +
                              checkpoint_path(folder.path(), 5).string())));
  expect_state_after(config, folder.path(), 5);
}

TEST(TrainerFaults, CtrlCIsAnsweredAtOnceAndTheSecondSaysWhatAThirdDoes) {
  const TempFolder folder;
  const RunConfig config = saving(folder.path());
  Sources sources(config);
  sources.train = std::make_shared<Interrupted>(sources.train, 30);
  Runtime runtime({.threads = 1});
  Session session(config, sources, runtime.device());
  Terminal silent(stdout, stderr, TerminalMode::silent);
  ::testing::internal::CaptureStderr();
  const RunEnd end = Trainer(session, silent, {.measures_peak = false}).run();
  const std::string said = ::testing::internal::GetCapturedStderr(),
                    saving_to = ", then saving to " + folder.path().string();
  EXPECT_EQ(end, RunEnd::stopped_by_signal);
  EXPECT_THAT(
      said, AllOf(HasSubstr("caught SIGINT: stopping after this iteration" + saving_to),
                  HasSubstr("caught SIGINT again: still stopping after this iteration" + saving_to +
                            "; a third Ctrl-C ends the run at once, without saving\n")));
  const auto saved = latest_checkpoint(folder.path());
  ASSERT_TRUE(saved);
  EXPECT_LE(*saved, 6) << "the iteration that sample 30 belongs to";
  expect_state_after(config, folder.path(), *saved);
}

TEST(TrainerFaults, WithoutSaveTheErrorSaysThatNothingIsKept) {
  RunConfig config = tiny_run();
  Sources sources(config);
  sources.train = std::make_shared<Failing>(sources.train, 30);
  EXPECT_THAT(error_of([&] { run(config, sources); }), HasSubstr("nothing was saved (no --save)"));
}

TEST(TrainerFaults, ARunThatDidNothingSavesNothing) {
  const TempFolder folder;
  const RunConfig config = saving(folder.path());
  Sources sources(config);
  sources.train = std::make_shared<Failing>(sources.train, 0);
  EXPECT_THAT(error_of([&] { run(config, sources); }), HasSubstr("there was no good iteration"));
  EXPECT_TRUE(checkpoints_in(folder.path()).empty());
}

TEST(TrainerFaults, ValidationDataThatCannotBeReadSavesToo) {
  const TempFolder folder;
  RunConfig config = saving(folder.path());
  config.train.eval_interval = 4;
  config.train.eval_iters = 1;
  Sources sources(config);
  ASSERT_TRUE(sources.valid);
  sources.valid = std::make_shared<Failing>(sources.valid, 6);  // the second evaluation
  EXPECT_THAT(error_of([&] { run(config, sources); }),
              AllOf(HasSubstr("sample 6 is gone"), HasSubstr("iteration 8, saved in ")));
  EXPECT_EQ(latest_checkpoint(folder.path()), 8);
}

// One rank of several cannot read: all of them stop at the same iteration, and save together.
TEST(TrainerFaults, ARankThatCannotReadStopsAllRanksWhichSaveTogether) {
  for (const bool cut : {false, true}) {
    const TempFolder folder, clean;
    RunConfig config = two_ranks(folder.path());
    if (cut) config.parallel.tensor_model_parallel_size = 2;
    const std::string error = error_of([&] {
      run_two(config, [](int rank, Sources& sources) {
        if (rank == 1) sources.train = std::make_shared<Failing>(sources.train, 30);
      });
    });
    EXPECT_THAT(error,
                AllOf(HasSubstr("is gone"), HasSubstr("the last good state is iteration 5")));
    EXPECT_EQ(latest_checkpoint(folder.path()), 5);
    config.train.save = clean.path();
    config.train.exit_interval = 5;
    run_two(config, [](int, Sources&) {});
    const NativeCheckpoint a(checkpoint_path(folder.path(), 5)),
        b(checkpoint_path(clean.path(), 5));
    EXPECT_TRUE(differences(a, b).empty()) << "the blank batch changed nothing";
  }
}

TEST(TrainerFaults, ARankThatCannotReadItsValidationDataStopsAllRanks) {
  const TempFolder folder;
  RunConfig config = two_ranks(folder.path());
  config.train.eval_interval = 4;
  config.train.eval_iters = 1;
  const std::string error = error_of([&] {
    run_two(config, [](int rank, Sources& sources) {
      if (rank == 1) sources.valid = std::make_shared<Failing>(sources.valid, 0);
    });
  });
  EXPECT_THAT(error, AllOf(HasSubstr("is gone"), HasSubstr("the last good state is iteration 4")));
  EXPECT_EQ(latest_checkpoint(folder.path()), 4);
}

}  // namespace
}  // namespace phx
