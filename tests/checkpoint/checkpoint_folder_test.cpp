#include "phalanx/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/faulty_disk.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::FaultyDisk;
using ::testing::HasSubstr;

TEST(CheckpointFolder, WithoutATrackerThereIsNoneAndABrokenTrackerIsAnError) {
  const TempFolder folder;
  EXPECT_EQ(latest_checkpoint(folder.path()), std::nullopt);
  write_file(folder / "latest_checkpointed_iteration.txt", "6abc");
  EXPECT_THAT(error_of([&] { latest_checkpoint(folder.path()); }), HasSubstr("holds '6abc'"));
}

constexpr const char* kTracker = "latest_checkpointed_iteration.txt";

// A checkpoint with one file that says `text`, committed.
void commit(const Path& folder, int64_t iteration, const std::string& text,
            Disk& disk = Disk::real()) {
  prepare_checkpoint(folder, iteration, disk);
  write_file(temporary_path(folder, iteration) / "file", text, disk);
  commit_checkpoint(folder, iteration, disk);
}

std::string text_in(const Path& folder, int64_t iteration) {
  return read_file(find_checkpoint(folder, iteration) / "file");
}

TEST(CheckpointFolder, NamesHaveSevenDigitsOrMore) {
  EXPECT_EQ(iteration_name(0), "iter_0000000");
  EXPECT_EQ(iteration_name(123), "iter_0000123");
  EXPECT_EQ(iteration_name(12345678), "iter_12345678");
  EXPECT_EQ(temporary_path("x", 7), Path("x/iter_0000007.tmp"));
}

TEST(CheckpointFolder, OnlyWholeNamesAreListedTheNewestFirst) {
  const TempFolder folder;
  for (const char* name : {"iter_0000002", "iter_0000010", "iter_0000003.tmp", "iter_0000004.old",
                           "iter_5", "iter_x", "other", "iter_00000007"})
    std::filesystem::create_directory(folder / name);
  EXPECT_EQ(checkpoints_in(folder.path()), (std::vector<int64_t>{10, 4, 2}));
  EXPECT_EQ(find_checkpoint(folder.path(), 4), folder / "iter_0000004.old");
  EXPECT_TRUE(checkpoints_in(folder / "absent").empty());
}

TEST(CheckpointFolder, ATrackerMayEndWithSpaces) {
  const TempFolder folder;
  write_file(folder / kTracker, "30 \r\n");
  EXPECT_EQ(latest_checkpoint(folder.path()), 30);
  for (const char* junk : {"", "-3", "3 4", "release"}) {
    write_file(folder / kTracker, junk);
    EXPECT_THAT(error_of([&] { latest_checkpoint(folder.path()); }),
                HasSubstr("should hold an iteration's number"))
        << junk;
  }
}

TEST(CheckpointFolder, ACommitRenamesAndThenMovesTheTracker) {
  const TempFolder folder;
  commit(folder.path(), 5, "five");
  EXPECT_EQ(latest_checkpoint(folder.path()), 5);
  EXPECT_EQ(text_in(folder.path(), 5), "five");
  EXPECT_FALSE(std::filesystem::exists(temporary_path(folder.path(), 5)));
}

TEST(CheckpointFolder, AnotherOfTheSameNumberReplacesTheFirstWithOrWithoutExchange) {
  for (const bool exchange : {true, false}) {
    const TempFolder folder;
    FaultyDisk disk;
    disk.can_exchange = exchange;
    commit(folder.path(), 5, "first", disk);
    commit(folder.path(), 5, "second", disk);
    EXPECT_EQ(text_in(folder.path(), 5), "second");
    size_t entries = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
      ++entries;
    EXPECT_EQ(entries, 2u) << "the checkpoint and the tracker, nothing of the first";
  }
}

TEST(CheckpointFolder, PreparingRemovesWhatDeadSavesLeftAndPutsAReplacedOneBack) {
  const TempFolder folder;
  commit(folder.path(), 5, "five");
  commit(folder.path(), 6, "six");
  std::filesystem::rename(folder / "iter_0000005", folder / "iter_0000005.old");  // stopped here
  std::filesystem::create_directories(folder / "iter_0000006.old");  // its successor is there
  std::filesystem::create_directories(folder / "iter_0000009.tmp/inside");
  write_file(folder / "iter_0000009.tmp/inside/file", "half");
  prepare_checkpoint(folder.path(), 9, Disk::real());
  EXPECT_EQ(read_file(folder / "iter_0000005/file"), "five");
  EXPECT_EQ(text_in(folder.path(), 6), "six");
  EXPECT_FALSE(std::filesystem::exists(folder / "iter_0000006.old"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "iter_0000009.tmp"));
}

TEST(CheckpointFolder, RemovingTakesTheNameAwayFirst) {
  const TempFolder folder;
  commit(folder.path(), 5, "five");
  commit(folder.path(), 6, "six");
  remove_checkpoint(folder.path(), 5, Disk::real());
  EXPECT_EQ(checkpoints_in(folder.path()), std::vector<int64_t>{6});
  EXPECT_NO_THROW(remove_checkpoint(folder.path(), 5, Disk::real()));

  // A disk that cannot remove files: what is left has no checkpoint's name, and nothing is thrown.
  class Stubborn : public Disk {
   public:
    int remove(const char*) override {
      errno = EBUSY;
      return -1;
    }
  };
  Stubborn stubborn;
  remove_checkpoint(folder.path(), 6, stubborn);
  EXPECT_TRUE(checkpoints_in(folder.path()).empty());
  EXPECT_TRUE(std::filesystem::exists(folder / "iter_0000006.tmp/file"));
}

}  // namespace
}  // namespace phx
