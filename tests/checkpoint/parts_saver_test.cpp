#include "phalanx/checkpoint/parts_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "checkpoint/saved_store.h"
#include "phalanx/base/error.h"
#include "support/faulty_disk.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Clock = std::chrono::steady_clock;

struct PartsSaverTest : ::testing::Test {
  PartsOptions options(int rank, std::chrono::milliseconds patience = std::chrono::seconds(10)) {
    return {.folder = folder.path(), .run = "a", .rank = rank, .ranks = 2, .patience = patience};
  }
  // One rank's word and part, of weights of seed 1.
  void part(const PartsOptions& options, int64_t iteration) {
    Runtime runtime({.threads = 1});
    CutStore cut(runtime.device(), 1, options.rank, 2);
    PartsSaver saver(options);
    saver.say({.iteration = iteration});
    saver.write(boxes(cut, options.rank));
  }
  // Rank 0's, with the part of rank 0.
  std::string join(const PartsOptions& options, int64_t iteration = 5) {
    Runtime runtime({.threads = 1});
    CutStore cut(runtime.device(), 1, 0, 2);
    PartsSaver saver(options);
    saver.say({.iteration = iteration});
    saver.write(boxes(cut, 0));
    return saver.join({});
  }
  void expect_nothing() {
    EXPECT_EQ(latest_checkpoint(folder.path()), std::nullopt);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }

  TempFolder folder;
};

TEST_F(PartsSaverTest, PartsOfTheSameIterationBecomeTheCheckpointThatOneRankWrites) {
  part(options(1), 5);
  EXPECT_EQ(join(options(0)), "");
  EXPECT_EQ(latest_checkpoint(folder.path()), 5);
  const TempFolder alone;
  save(alone.path(), 5, 1);
  EXPECT_EQ(saved_bytes(folder.path(), 5), saved_bytes(alone.path(), 5));
}

TEST_F(PartsSaverTest, APartThatComesLaterIsWaitedFor) {
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    part(options(1), 5);
  });
  EXPECT_EQ(join(options(0)), "");
  later.join();
  EXPECT_EQ(latest_checkpoint(folder.path()), 5);
}

TEST_F(PartsSaverTest, PartsOfDifferentIterationsAreNeverPutTogether) {
  part(options(1), 6);
  EXPECT_EQ(join(options(0)), "rank 1 has the state of iteration 6, rank 0 that of iteration 5");
  expect_nothing();
}

TEST_F(PartsSaverTest, AStateThatIsNotThatOfAnIterationIsNotSaved) {
  PartsSaver(options(1)).say({.iteration = 5, .unfit = "had begun the update of iteration 6"});
  EXPECT_EQ(join(options(0)), "rank 1 had begun the update of iteration 6");
  expect_nothing();
}

TEST_F(PartsSaverTest, ARankThatSaysNothingIsNamedAfterABoundedWait) {
  const auto begin = Clock::now();
  EXPECT_EQ(join(options(0, std::chrono::milliseconds(300))), "nothing came from rank 1");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  expect_nothing();
}

TEST_F(PartsSaverTest, ARankThatDiesWhileItWritesIsNamed) {
  PartsSaver(options(1)).say({.iteration = 5});
  EXPECT_EQ(join(options(0, std::chrono::milliseconds(300))), "no complete part came from rank 1");
  expect_nothing();
}

TEST_F(PartsSaverTest, ASignalEndsTheWait) {
  const auto begin = Clock::now();
  PartsOptions stopped = options(0);
  stopped.stop = [] { return true; };
  EXPECT_THAT(join(stopped), HasSubstr("when the wait was interrupted"));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  expect_nothing();
}

TEST_F(PartsSaverTest, AShardThatIsTooShortIsNoPart) {
  part(options(1), 5);
  const Path shard = parts_path(folder.path(), "a") / "shard_00001.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  EXPECT_THAT(join(options(0)), AllOf(HasSubstr(shard.string()), HasSubstr("should have")));
  expect_nothing();
}

TEST_F(PartsSaverTest, PartsOfAnotherRunAreNotTakenAndTheNextSaveRemovesThem) {
  PartsOptions other = options(1);
  other.run = "b";
  part(other, 5);
  EXPECT_EQ(join(options(0, std::chrono::milliseconds(300))), "nothing came from rank 1");
  EXPECT_TRUE(std::filesystem::exists(parts_path(folder.path(), "b")));
  save(folder.path(), 6, 1);
  EXPECT_FALSE(std::filesystem::exists(parts_path(folder.path(), "b")));
}

TEST_F(PartsSaverTest, ARankThatRankZeroDoesNotAnswerTakesItsPartBack) {
  Runtime runtime({.threads = 1});
  CutStore cut(runtime.device(), 1, 1, 2);
  PartsSaver saver(options(1, std::chrono::milliseconds(200)));
  saver.say({.iteration = 5});
  saver.write(boxes(cut, 1));
  saver.wait_for_join();
  expect_nothing();
}

// Whatever call of the disk fails on rank 0: the older checkpoint stays what it was.
TEST_F(PartsSaverTest, ADiskThatFailsAtAnyCallLeavesACompleteCheckpoint) {
  for (int64_t call = 1;; ++call) {
    const TempFolder place;
    save(place.path(), 5, 7);
    const auto before = saved_bytes(place.path(), 5);
    PartsOptions second = options(1);
    second.folder = place.path();
    part(second, 5);
    FaultyDisk disk;
    disk.fail_from = call;
    PartsOptions first = options(0, std::chrono::milliseconds(50));
    first.folder = place.path();
    first.disk = &disk;
    std::string missing;
    try {
      missing = join(first);
    } catch (const std::exception& error) {
      missing = error.what();
    }
    const auto after = saved_bytes(place.path(), 5);
    if (missing.empty()) {
      EXPECT_NE(after, before);
      if (disk.calls() < call) break;
    }
  }
}

}  // namespace
}  // namespace phx
