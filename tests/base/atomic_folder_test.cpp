#include "phalanx/base/atomic_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <optional>

#include "phalanx/base/error.h"
#include "support/faulty_disk.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using testing::FaultyDisk;
using ::testing::HasSubstr;

void write(const Path& path, const std::string& content, Disk& disk = Disk::real()) {
  AtomicFolder folder(path, disk);
  make_folder(folder.temporary() / "inside");
  write_file(folder.temporary() / "a", content);
  write_file(folder.temporary() / "inside/b", content);
  folder.commit();
}

// What all of its files hold; nothing if there is no such folder, or if they contradict each other.
std::optional<std::string> content_of(const Path& path) {
  if (!std::filesystem::exists(path / "a") || !std::filesystem::exists(path / "inside/b"))
    return {};
  const std::string content = read_file(path / "a");
  return read_file(path / "inside/b") == content ? std::optional(content) : std::nullopt;
}

int64_t count_names(const TempFolder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.path()), {});
}

TEST(AtomicFolder, ComesIntoBeingAndIsReplaced) {
  for (const bool can_exchange : {true, false}) {
    const TempFolder folder;
    FaultyDisk disk;
    disk.can_exchange = can_exchange;
    for (const char* content : {"old", "new"}) {
      write(folder / "out", content, disk);
      EXPECT_EQ(content_of(folder / "out"), content);
      EXPECT_EQ(count_names(folder), 1) << "nothing is left beside it";
    }
  }
}

TEST(AtomicFolder, ASlashAtTheEndOfTheNameChangesNothing) {
  const TempFolder folder;
  write(folder / "above" / "out" / "", "new");
  EXPECT_EQ(content_of(folder / "above/out"), "new");
  EXPECT_EQ(count_names(folder), 1);
}

TEST(AtomicFolder, WithoutCommitTheOldOneStays) {
  const TempFolder folder;
  write(folder / "out", "old");
  write_file(AtomicFolder(folder / "out").temporary() / "a", "new");
  EXPECT_EQ(content_of(folder / "out"), "old");
  write(folder / "out", "newer");
  EXPECT_EQ(content_of(folder / "out"), "newer");
}

TEST(AtomicFolder, WhicheverCallFailsTheErrorNamesAPathAndAWholeFolderIsThere) {
  for (const bool can_exchange : {true, false}) {
    for (int64_t call = 1;; ++call) {
      const TempFolder folder;
      write(folder / "out", "old");
      FaultyDisk disk;
      disk.can_exchange = can_exchange;
      disk.fail_from = disk.fail_until = call;
      std::string error;
      try {
        write(folder / "out", "new", disk);
      } catch (const Error& failed) {
        error = failed.what();
      }
      const auto found = content_of(folder / "out");
      if (disk.calls() < call) {
        EXPECT_EQ(error, "");
        EXPECT_EQ(found, "new");
        EXPECT_GT(call, 6) << "what failed is not what should have";
        break;
      }
      EXPECT_TRUE(found == "old" || found == "new") << "call " << call;
      // A failed exchange is none: the way without it is taken.
      if (!error.empty()) {
        EXPECT_THAT(error, HasSubstr(folder.path().native()));
      } else {
        EXPECT_EQ(found, "new");
      }
      write(folder / "out", "newer");
      EXPECT_EQ(content_of(folder / "out"), "newer");
      EXPECT_EQ(count_names(folder), 1) << "call " << call;
    }
  }
}

TEST(AtomicFolder, WhereverAProcessDiesAWholeFolderIsThere) {
  for (const bool can_exchange : {true, false}) {
    for (int64_t call = 1;; ++call) {
      const TempFolder folder;
      write(folder / "out", "old");
      const pid_t child = ::fork();
      if (child == 0) {
        FaultyDisk disk;
        disk.can_exchange = can_exchange;
        disk.kill_at = call;
        write(folder / "out", "new", disk);
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      const bool died = WIFSIGNALED(status);
      // Without an exchange there is a moment when the old one has its other name.
      const auto found = content_of(folder / "out"),
                 other = content_of(folder / "out.phalanx-replaced");
      EXPECT_TRUE(found == "old" || found == "new" || (!can_exchange && !found && other == "old"))
          << "call " << call;
      const bool had_to_move = !found && other == "old";
      AtomicFolder next(folder / "out");
      EXPECT_TRUE(content_of(folder / "out") == (had_to_move ? "old" : found)) << "call " << call;
      if (!died) {
        EXPECT_EQ(found, "new");
        break;
      }
    }
  }
}

TEST(AtomicFolder, RemovingATreeDoesNotFollowLinks) {
  const TempFolder folder;
  make_folder(folder / "kept");
  write_file(folder / "kept/a", "x");
  make_folder(folder / "gone/inside");
  write_file(folder / "gone/inside/b", "y");
  std::filesystem::create_directory_symlink(folder / "kept", folder / "gone/link");
  remove_tree(folder / "gone");
  remove_tree(folder / "gone");
  EXPECT_EQ(count_names(folder), 1);
  EXPECT_EQ(read_file(folder / "kept/a"), "x");
}

}  // namespace
}  // namespace phx
