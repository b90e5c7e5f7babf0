// Runs that end badly: what can be saved is saved, and it is the state after the last good
// iteration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/compare.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/train/save_folder.h"
#include "phalanx/train/trainer.h"
#include "support/faulty_disk.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using phx::testing::FaultyDisk;
using phx::testing::tiny_run;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Samples that cannot be read from this one on.
class Failing : public SampleSource {
 public:
  Failing(std::shared_ptr<const SampleSource> source, int64_t from)
      : source_(std::move(source)), from_(from) {}
  void sample(int64_t index, Sample& out) const override {
    PHX_CHECK(index < from_, "sample ", index, " is gone");
    source_->sample(index, out);
  }
  SampleParts parts() const override { return source_->parts(); }
  std::optional<int64_t> num_samples() const override { return source_->num_samples(); }
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const SampleSource> source_;
  int64_t from_;
};

// Samples that can be read, but not computed with from this one on: their positions are in no
// table.
class Displaced : public SampleSource {
 public:
  Displaced(std::shared_ptr<const SampleSource> source, int64_t from)
      : source_(std::move(source)), from_(from) {}
  void sample(int64_t index, Sample& out) const override {
    source_->sample(index, out);
    out.positions.resize(out.tokens.size());
    std::iota(out.positions.begin(), out.positions.end(), index < from_ ? 0 : 1000);
  }
  SampleParts parts() const override { return {.positions = true}; }
  std::optional<int64_t> num_samples() const override { return source_->num_samples(); }
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const SampleSource> source_;
  int64_t from_;
};

void run(const RunConfig& config, const Sources& sources, const TrainerOptions& options = {}) {
  Runtime runtime({.threads = 1});
  Session session(config, sources, runtime.device());
  Terminal silent(stdout, stderr, TerminalMode::silent);
  TrainerOptions own = options;
  own.measures_peak = own.catches_signals = false;
  Trainer(session, silent, own).run();
}

RunConfig saving(const Path& folder) {
  RunConfig config = tiny_run();  // six samples an iteration
  config.train.save = folder;
  return config;
}

// The same weights and moments as a run that was told to stop there.
void expect_state_after(const RunConfig& config, const Path& folder, int64_t iteration) {
  const TempFolder clean;
  RunConfig other = config;
  other.train.save = clean.path();
  other.train.exit_interval = iteration;
  run(other, Sources(other));
  EXPECT_EQ(latest_checkpoint(folder), iteration);
  const NativeCheckpoint a(checkpoint_path(folder, iteration)),
      b(checkpoint_path(clean.path(), iteration));
  EXPECT_TRUE(differences(a, b).empty());
}

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

TEST(TrainerFaults, ADiskThatFailsInASaveIsNotAskedAgain) {
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

// One rank of several cannot read: all of them stop at the same iteration, and save together.
void run_two(RunConfig config, const std::function<void(int rank, Sources& sources)>& change) {
  const Layout layout = make_layout(config.layout(), 2);
  run_thread_ranks(2, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
    Runtime runtime({.threads = 1});
    const Mesh mesh(world, layout.mesh);
    Sources sources(config);
    change(world.rank(), sources);
    Session session(config, sources, runtime.device(), mesh);
    Terminal silent(stdout, stderr, TerminalMode::silent);
    Trainer(session, silent, {.catches_signals = false, .measures_peak = false}).run();
  });
}

RunConfig two_ranks(const Path& folder) {
  RunConfig config = saving(folder);
  config.model.attention_dropout = config.model.hidden_dropout = 0;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 6;
  return config;
}

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

// Data-parallel ranks hold the same state: one of them saves it when another fails within a step.
TEST(TrainerFaults, ARankThatHoldsTheWholeStateSavesItWhenAnotherFails) {
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

TEST(TrainerFaults, RanksThatHoldPartsOfTheStateSaveNothingWhenOneFails) {
  for (const bool cut : {false, true}) {
    const TempFolder folder;
    RunConfig config = two_ranks(folder.path());
    config.parallel.tensor_model_parallel_size = cut ? 2 : 1;
    config.parallel.use_distributed_optimizer = !cut;
    EXPECT_THAT(error_of([&] {
                  run_two(config, [](int, Sources& sources) {
                    sources.train = std::make_shared<Displaced>(sources.train, 30);
                  });
                }),
                HasSubstr("the table has 24 positions"));
    EXPECT_TRUE(checkpoints_in(folder.path()).empty());
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

TEST(TrainerFaults, AFailedHuggingFaceExportDoesNotEndTheRun) {
  const TempFolder folder;
  RunConfig config = saving(folder.path());
  config.train.train_iters = 4;
  config.train.save_interval = config.train.save_hf_interval = 2;
  write_file(folder / "hf", "a file where the folder should be");
  run(config, Sources(config));
  EXPECT_EQ(latest_checkpoint(folder.path()), 4);
}

TEST(TrainerFaults, MetricsAndEventsThatCannotBeWrittenDoNotEndTheRun) {
  const TempFolder folder;
  RunConfig config = saving(folder.path());
  config.train.train_iters = 3;
  make_folder(folder / "logs");
  config.train.metrics_file = (folder / "logs/metrics").string();
  config.train.tensorboard_dir = (folder / "logs/tb").string();
  Runtime runtime({.threads = 1});
  Session session(config, Sources(config), runtime.device());
  Terminal silent(stdout, stderr, TerminalMode::silent);
  Trainer trainer(session, silent, {.catches_signals = false, .measures_peak = false});
  std::filesystem::remove_all(folder / "logs");
  write_file(folder / "logs", "a file where the folder was");
  EXPECT_EQ(trainer.run(), RunEnd::finished);
  EXPECT_EQ(latest_checkpoint(folder.path()), 3);
}

// --- where a run may save

TrainConfig into(const Path& save, const std::string& load = "") {
  TrainConfig train;
  train.save = save;
  train.load = load;
  return train;
}

TEST(SaveFolder, AUsedFolderIsRefusedUnlessTheRunGoesOnFromIt) {
  const TempFolder folder, other;
  check_save_folder(into(folder.path()));
  check_save_folder(into(folder / "not there yet"));
  for (const char* name : {"iter_0000005", "iter_0000010"})
    std::filesystem::create_directories(folder / name);
  EXPECT_THAT(error_of([&] { check_save_folder(into(folder.path())); }),
              AllOf(HasSubstr("holds the checkpoints of another run (2, the newest of iteration "
                              "10), but there is no --load"),
                    HasSubstr("--load " + folder.path().string() + " goes on from there"),
                    HasSubstr("--save-into-used-folder begins anew")));
  EXPECT_THAT(error_of([&] { check_save_folder(into(folder.path(), other.path())); }),
              HasSubstr("but --load is " + other.path().string()));
  check_save_folder(into(folder.path(), folder.path()));
  check_save_folder(into(folder.path(), (folder / ".").string()));
}

TEST(SaveFolder, FinetuningInItsOwnFolderWouldBeginAnewOverIt) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "iter_0000005");
  TrainConfig train = into(folder.path(), folder.path());
  train.finetune = true;
  EXPECT_THAT(error_of([&] { check_save_folder(train); }),
              HasSubstr("--finetune begins at iteration 0"));
}

TEST(SaveFolder, WhoIsToldToMayUseAUsedFolder) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "iter_0000005");
  TrainConfig train = into(folder.path());
  train.save_into_used_folder = true;
  check_save_folder(train);
  train.save_into_used_folder = false;
  train.skip_train = true;  // saves nothing
  check_save_folder(train);
}

}  // namespace
}  // namespace phx
