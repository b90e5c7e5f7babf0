#include "phalanx/checkpoint/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "checkpoint/saved_store.h"
#include "phalanx/comm/thread_world.h"
#include "support/faulty_disk.h"
#include "support/gradients.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::all_bytes;
using phx::testing::boxes;
using phx::testing::CutStore;
using phx::testing::error_of;
using phx::testing::FaultyDisk;
using phx::testing::save;
using phx::testing::saved_bytes;
using phx::testing::test_device;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace phx
