#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/saved_store.h"
#include "phalanx/checkpoint/saver.h"
#include "phalanx/comm/thread_world.h"
#include "support/faulty_disk.h"
#include "support/gradients.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::boxes;
using phx::testing::CutStore;
using phx::testing::error_of;
using phx::testing::FaultyDisk;
using phx::testing::save;
using phx::testing::saved_bytes;
using phx::testing::test_device;
using ::testing::HasSubstr;

TEST(SaverThreads, WhatIsSavedIsWhatWasThereAtBeginHoweverSlowTheDisk) {
  const TempFolder folder;
  FaultyDisk slow;
  slow.delay = std::chrono::milliseconds(20);
  CutStore cut(test_device(), 1), later(test_device(), 2), truth(test_device(), 1);
  CheckpointSaver saver({.folder = folder.path(), .disk = &slow});
  saver.begin(1, boxes(cut), {}, SaveMode::background);
  saver.wait_for_copies();
  copy(later.store.weights(), cut.store.weights());  // an update
  EXPECT_TRUE(saver.busy());
  saver.begin(2, boxes(cut), {}, SaveMode::background);  // waits for the first
  EXPECT_EQ(latest_checkpoint(folder.path()), 1);
  const auto report = saver.wait();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->iteration, 2);
  save(folder.path(), 11, 1);
  save(folder.path(), 12, 2);
  EXPECT_EQ(saved_bytes(folder.path(), 1), saved_bytes(folder.path(), 11));
  EXPECT_EQ(saved_bytes(folder.path(), 2), saved_bytes(folder.path(), 12));
}

TEST(SaverThreads, AFailingRankIsNamedOnAllOthers) {
  const TempFolder folder;
  const std::string message = error_of([&] {
    run_thread_ranks(2, {}, [&](World& world) {
      Runtime runtime({.threads = 1});
      const auto ranks = world.group({0, 1}, "world");
      CutStore cut(runtime.device(), 1, world.rank(), 2);
      FaultyDisk bad;
      if (world.rank() == 1) bad.fail_from = 2, bad.only_writes = true;
      CheckpointSaver saver({.folder = folder.path(), .world = ranks.get(), .disk = &bad});
      saver.begin(1, boxes(cut, world.rank()), {});
      saver.wait();
    });
  });
  EXPECT_THAT(message, HasSubstr("shard_00001.safetensors"));
  EXPECT_EQ(latest_checkpoint(folder.path()), std::nullopt);
}

TEST(SaverThreads, KeepsWhatTheRetainIntervalSays) {
  const TempFolder folder;
  CutStore cut(test_device(), 1);
  CheckpointSaver saver({.folder = folder.path(), .retain_interval = 4});
  for (int64_t iteration = 2; iteration <= 10; iteration += 2) {
    saver.begin(iteration, boxes(cut), {});
    saver.wait();
  }
  EXPECT_EQ(checkpoints_in(folder.path()), (std::vector<int64_t>{10, 8, 4}));
}

// 36 MB: five slots of the ring, so that several threads copy and write.
class Large : public Module {
 public:
  Large() : weight_(whole({3000, 3001}, Init::normal(1))) { add_parameter("weight", weight_); }

 private:
  Parameter weight_;
};

void save_large(const Path& folder, int64_t iteration, SaveMode mode, Disk& disk = Disk::real()) {
  Large model;
  ParameterStore store(model, test_device(), {.gradients = false});
  const FlatState state{"", store.weights()};
  const FlatRange all = store.all();
  CheckpointSaver saver({.folder = folder, .ring_bytes = 1, .disk = &disk});
  saver.begin(iteration, boxes_of(store, state, {&all, 1}), {}, mode);
  EXPECT_EQ(saver.wait()->bytes, 3000 * 3001 * 4);
  const auto bytes = saved_bytes(folder, iteration);
  EXPECT_EQ(std::memcmp(bytes.at("weight").data(), store.weights().raw(), 3000 * 3001 * 4), 0);
}

TEST(SaverThreads, ARingSmallerThanTheStateIsEnough) {
  const TempFolder folder;
  for (const SaveMode mode : {SaveMode::background, SaveMode::waiting})
    save_large(folder.path(), 1, mode);
}

TEST(SaverThreads, ADiskThatFailsWhileSeveralThreadsWriteEndsAllOfThem) {
  const TempFolder folder;
  save_large(folder.path(), 1, SaveMode::waiting);
  const auto before = saved_bytes(folder.path(), 1);
  for (const SaveMode mode : {SaveMode::background, SaveMode::waiting}) {
    FaultyDisk counting;
    save_large(folder.path(), 2, mode, counting);
    remove_checkpoint(folder.path(), 2, Disk::real());
    write_file(folder / "latest_checkpointed_iteration.txt", "1");
    for (int64_t call = 1; call <= counting.calls(); ++call) {
      FaultyDisk bad;
      bad.fail_from = call;
      bad.only_writes = true;
      try {
        save_large(folder.path(), 2, mode, bad);
        break;  // that was behind the last write
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(folder.path().string())) << call;
      }
      // Once the tracker has been renamed the checkpoint is there.
      saved_bytes(folder.path(), latest_checkpoint(folder.path()).value());
      write_file(folder / "latest_checkpointed_iteration.txt", "1");
    }
    EXPECT_EQ(saved_bytes(folder.path(), 1), before);
  }
}

TEST(SaverThreads, ACheckpointOfTheSameIterationReplacesTheFirst) {
  const TempFolder folder, truth;
  save(folder.path(), 4, 1);
  save(folder.path(), 4, 2);
  save(truth.path(), 4, 2);
  EXPECT_EQ(saved_bytes(folder.path(), 4), saved_bytes(truth.path(), 4));
  EXPECT_EQ(checkpoints_in(folder.path()), std::vector<int64_t>{4});
}

TEST(SaverThreads, TheReportCountsWhatThisRankWrote) {
  const TempFolder folder;
  CutStore cut(test_device(), 1);
  CheckpointSaver saver({.folder = folder.path()});
  saver.begin(7, boxes(cut), {});
  const auto report = saver.wait();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->iteration, 7);
  EXPECT_EQ(report->bytes, (16 * 6 + 5 * 8 + 11 * 4 + 7) * 4);
}

}  // namespace
}  // namespace phx
