#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "phalanx/train/trainer.h"
#include "support/faulty_disk.h"
#include "train/faulty_runs.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What a run writes to its log.
std::string log_of(const RunConfig& config) {
  const TempFolder folder;
  std::FILE* file = std::fopen((folder / "log").c_str(), "w");
  {
    Runtime runtime({.threads = 1});
    Session session(config, Sources(config), runtime.device());
    Terminal terminal(file, file, TerminalMode::plain);
    Trainer(session, terminal, {.catches_signals = false, .measures_peak = false}).run();
  }
  std::fclose(file);
  return read_file(folder / "log");
}

TEST(TrainerSaves, EverySaveIsToldAndAsynchronousOnesSayHowLongTheLoopStalled) {
  for (const bool async : {false, true}) {
    const TempFolder folder;
    RunConfig config = saving(folder.path());
    config.train.train_iters = 4;
    config.train.save_interval = 2;
    config.train.async_save = async;
    const std::string log = log_of(config);
    for (const int64_t iteration : {2, 4})
      EXPECT_THAT(log, HasSubstr("saved " + checkpoint_path(folder.path(), iteration).string()));
    EXPECT_EQ(log.find("in the background; the loop stalled for ") != std::string::npos, async);
    EXPECT_EQ(checkpoints_in(folder.path()), (std::vector<int64_t>{4, 2}));
  }
}

TEST(TrainerSaves, TheLastIterationIsNotSavedTwice) {
  const TempFolder folder;
  RunConfig config = saving(folder.path());
  config.train.train_iters = 3;
  config.train.save_interval = 3;
  const std::string log = log_of(config);
  EXPECT_EQ(log.find("saved "), log.rfind("saved ")) << log;
}

TEST(TrainerSaves, RetainedCheckpointsStayAndOthersGo) {
  const TempFolder folder;
  RunConfig config = saving(folder.path());
  config.train.train_iters = 4;
  config.train.save_interval = 1;
  config.train.save_retain_interval = 2;
  run(config, Sources(config));
  EXPECT_EQ(checkpoints_in(folder.path()), (std::vector<int64_t>{4, 2}));
}

TEST(TrainerSaves, ADiskThatFailsInASaveIsNotAskedAgain) {
  const TempFolder folder;
  RunConfig config = saving(folder.path());
  config.train.save_interval = 2;
  FaultyDisk bad;
  bad.fail_from = 1;
  bad.error = ENOSPC;
  const std::string error = error_of([&] { run(config, Sources(config), {.disk = &bad}); });
  EXPECT_THAT(error, AllOf(HasSubstr("the disk is full"), Not(HasSubstr("could not be saved"))));
  EXPECT_EQ(latest_checkpoint(folder.path()), std::nullopt);
}

TEST(TrainerSaves, AFailedHuggingFaceExportDoesNotEndTheRun) {
  const TempFolder folder;
  RunConfig config = saving(folder.path());
  config.train.train_iters = 4;
  config.train.save_interval = config.train.save_hf_interval = 2;
  write_file(folder / "hf", "a file where the folder should be");
  run(config, Sources(config));
  EXPECT_EQ(latest_checkpoint(folder.path()), 4);
}

// Data-parallel ranks hold the same state: one of them saves it when another fails within a step.
TEST(TrainerSaves, ARankThatHoldsTheWholeStateSavesItWhenAnotherFails) {
  for (const bool async : {false, true}) {
    const TempFolder folder, clean;
    RunConfig config = two_ranks(folder.path());
    config.train.async_save = async;
    if (async) config.train.save_interval = 2;
    EXPECT_THAT(error_of([&] {
                  run_two(config, [](int rank, Sources& sources) {
                    const int64_t never = 1000000;
                    sources.train =
                        std::make_shared<Displaced>(sources.train, rank == 1 ? 30 : never);
                  });
                }),
                HasSubstr("the table has 24 positions"));
    EXPECT_EQ(latest_checkpoint(folder.path()), 5);
    config.train.save = clean.path();
    config.train.exit_interval = 5;
    run_two(config, [](int, Sources&) {});
    const NativeCheckpoint a(checkpoint_path(folder.path(), 5)),
        b(checkpoint_path(clean.path(), 5));
    EXPECT_TRUE(differences(a, b).empty());
  }
}

}  // namespace
}  // namespace phx
