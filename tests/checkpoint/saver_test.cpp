#include "phalanx/checkpoint/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstring>

#include "checkpoint/checkpoint_model.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/comm/thread_world.h"
#include "support/faulty_disk.h"
#include "support/gradients.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::all_bytes;
using phx::testing::CutStore;
using phx::testing::error_of;
using phx::testing::FaultyDisk;
using phx::testing::test_device;
using ::testing::HasSubstr;

std::vector<LocalBox> boxes(CutStore& cut, int rank = 0) {
  const FlatRange all = cut.store.all();
  return boxes_of(cut.store, cut.states()[0], {&all, 1},
                  [&](const Parameter& p) { return rank == 0 || p.name() != "vector.bias"; });
}

std::map<std::string, std::vector<std::byte>> saved_bytes(const Path& folder, int64_t iteration) {
  const NativeCheckpoint checkpoint(checkpoint_path(folder, iteration));
  checkpoint.verify();
  return all_bytes(checkpoint);
}

// Saves weights of this seed as this iteration.
void save(const Path& folder, int64_t iteration, uint64_t seed, Disk& disk = Disk::real(),
          SaveMode mode = SaveMode::background) {
  Runtime runtime({.threads = 1});
  CutStore cut(runtime.device(), seed);
  CheckpointSaver saver({.folder = folder, .disk = &disk});
  saver.begin(iteration, boxes(cut), {}, mode);
  saver.wait();
}

TEST(Saver, RanksWriteEveryPieceOnceAndOneRankReadsThem) {
  const TempFolder one, four;
  save(one.path(), 5, 1);
  run_thread_ranks(4, {}, [&](World& world) {
    Runtime runtime({.threads = 1});
    const auto ranks = world.group({0, 1, 2, 3}, "world");
    CutStore cut(runtime.device(), 1, world.rank(), 4);
    CheckpointSaver saver({.folder = four.path(), .world = ranks.get()});
    saver.begin(5, boxes(cut, world.rank()), {});  // one rank's save above went through the ring
    EXPECT_EQ(saver.wait().has_value(), world.rank() == 0);
    EXPECT_EQ(latest_checkpoint(four.path()), 5) << "a wait that returns means a checkpoint";
  });
  EXPECT_EQ(saved_bytes(one.path(), 5), saved_bytes(four.path(), 5));
  const NativeCheckpoint checkpoint(checkpoint_path(four.path(), 5));
  EXPECT_EQ(checkpoint.manifest().files.size(), 4u);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint.path()))
    files += entry.is_regular_file();
  EXPECT_EQ(files, 5) << "parts of ranks are gone";
}

TEST(Saver, WhatIsSavedIsWhatWasThereAtBeginHoweverSlowTheDisk) {
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

TEST(Saver, EveryFailingCallIsAnErrorThatNamesAFileAndTheOlderCheckpointStays) {
  const TempFolder folder;
  save(folder.path(), 1, 1);
  const auto before = saved_bytes(folder.path(), 1);
  FaultyDisk counting;
  save(folder.path(), 2, 2, counting);
  remove_checkpoint(folder.path(), 2, Disk::real());
  write_file(folder / "latest_checkpointed_iteration.txt", "1");
  for (const int error : {ENOSPC, EIO}) {
    for (int64_t call = 1; call <= counting.calls(); ++call) {
      FaultyDisk bad;
      bad.fail_from = call;
      bad.error = error;
      // Once the tracker has been renamed the checkpoint is there; later errors are about the rest.
      const std::string message = error_of([&] { save(folder.path(), 2, 2, bad); });
      EXPECT_THAT(message, HasSubstr(folder.path().string())) << call;
      EXPECT_THAT(message, HasSubstr(error == ENOSPC ? "the disk is full" : "the disk or network"));
      const auto latest = latest_checkpoint(folder.path());
      ASSERT_TRUE(latest == 1 || latest == 2) << call;
      saved_bytes(folder.path(), *latest);
      EXPECT_EQ(saved_bytes(folder.path(), 1), before) << call;
      write_file(folder / "latest_checkpointed_iteration.txt", "1");
    }
  }
  save(folder.path(), 2, 2);
  EXPECT_EQ(latest_checkpoint(folder.path()), 2) << "what failed saves left does not disturb";
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    folders += entry.is_directory();
  EXPECT_EQ(folders, 2) << "and is gone";
}

TEST(Saver, AFailingRankIsNamedOnAllOthers) {
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

// In a process of its own, which dies at the given call. Whether it died.
bool save_and_die(const Path& folder, int64_t iteration, uint64_t seed, int64_t kill_at,
                  bool can_exchange) {
  const pid_t child = ::fork();
  if (child == 0) {
    FaultyDisk disk;
    disk.kill_at = kill_at;
    disk.can_exchange = can_exchange;
    try {
      save(folder, iteration, seed, disk);
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

TEST(Saver, KilledAtAnyCallTheNewCheckpointIsWholeOrTheOldOneIsThere) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer ends a forked process that starts threads";
#endif
  const TempFolder truth;
  save(truth.path(), 1, 1);
  save(truth.path(), 2, 2);
  const auto first = saved_bytes(truth.path(), 1), second = saved_bytes(truth.path(), 2);
  // A new iteration; one that replaces another of its number; the same where names cannot be
  // exchanged.
  struct Case {
    int64_t iteration;
    bool can_exchange;
  };
  for (const Case& it : {Case{2, true}, Case{1, true}, Case{1, false}}) {
    const TempFolder folder;
    save(folder.path(), 1, 1);
    bool died = true;
    int news = 0;
    for (int64_t call = 1; died; ++call) {
      died = save_and_die(folder.path(), it.iteration, 2, call, it.can_exchange);
      const auto latest = latest_checkpoint(folder.path());
      ASSERT_TRUE(latest.has_value()) << call;
      const NativeCheckpoint checkpoint(find_checkpoint(folder.path(), *latest));
      checkpoint.verify();
      const auto bytes = all_bytes(checkpoint);
      EXPECT_TRUE(bytes == first || bytes == second) << call;
      news += bytes == second;
      if (bytes != second) continue;
      save(folder.path(), 1, 1);  // back to the start
      write_file(folder / "latest_checkpointed_iteration.txt", "1");
    }
    EXPECT_GE(news, 1);
    // Nothing that dead saves left is in the way.
    save(folder.path(), it.iteration, 2);
    EXPECT_EQ(saved_bytes(folder.path(), it.iteration), second);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      EXPECT_FALSE(entry.path().string().ends_with(".tmp") ||
                   entry.path().string().ends_with(".old"))
          << entry.path();
  }
}

TEST(Saver, KeepsWhatTheRetainIntervalSays) {
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

TEST(Saver, ARingSmallerThanTheStateIsEnough) {
  const TempFolder folder;
  for (const SaveMode mode : {SaveMode::background, SaveMode::waiting})
    save_large(folder.path(), 1, mode);
}

TEST(Saver, ADiskThatFailsWhileSeveralThreadsWriteEndsAllOfThem) {
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

}  // namespace
}  // namespace phx
