#include "phalanx/checkpoint/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "support/temp_folder.h"

namespace phx {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A process that holds the lock until it is killed.
pid_t hold_in_child(const Path& folder, const FolderLockOptions& options) {
  int ready[2];
  EXPECT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    FolderLockOptions own = options;
    own.self.pid = ::getpid();
    own.self.process_start = LockHolder::self().process_start;
    const FolderLock lock(folder, own);
    (void)!::write(ready[1], "x", 1);
    while (true) ::pause();
  }
  char byte;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

void kill_and_wait(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

std::string refusal(const Path& folder, const FolderLockOptions& options = {}) {
  return error_of([&] { FolderLock lock(folder, options); });
}

TEST(FolderLock, ASecondRunIsRefusedAndTheHolderIsNamed) {
  const TempFolder folder;
  const pid_t child = hold_in_child(folder.path(), {});
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  EXPECT_THAT(refusal(folder.path()),
              AllOf(HasSubstr(folder.path().string() + " is in use: process " +
                              std::to_string(child) + " on " + host + ", since 20"),
                    HasSubstr("hint: give another --save")));
  kill_and_wait(child);
}

TEST(FolderLock, TheLockOfAKilledProcessIsTakenOver) {
  const TempFolder folder;
  const pid_t child = hold_in_child(folder.path(), {});
  kill_and_wait(child);
  EXPECT_TRUE(std::filesystem::exists(folder / "run.lock")) << "kill -9 cleans nothing up";
  const FolderLock lock(folder.path());
  ASSERT_TRUE(lock.taken_over_from());
  EXPECT_EQ(lock.taken_over_from()->pid, child);
}

TEST(FolderLock, ARunThatEndsLeavesNothing) {
  const TempFolder folder;
  {
    const FolderLock lock(folder / "new");
    EXPECT_FALSE(lock.taken_over_from());
    EXPECT_THAT(read_file(folder / "new" / "run.lock"),
                HasSubstr("\"pid\":" + std::to_string(::getpid())));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "new"));
  FolderLock again(folder / "new");
}

TEST(FolderLock, TwoInOneProcessExcludeEachOtherToo) {
  const TempFolder folder;
  const FolderLock lock(folder.path());
  EXPECT_THAT(refusal(folder.path()), HasSubstr("is in use: process"));
}

// As on a file system without locks: processes are looked up by number and start.
TEST(FolderLock, WithoutSystemLocksALivingProcessHoldsAndADeadOneDoesNot) {
  const TempFolder folder;
  const FolderLockOptions without{.system_locks = false};
  const pid_t child = hold_in_child(folder.path(), without);
  EXPECT_THAT(refusal(folder.path(), without),
              HasSubstr("process " + std::to_string(child) + " on "));
  kill_and_wait(child);
  const FolderLock lock(folder.path(), without);
  EXPECT_TRUE(lock.taken_over_from());
}

TEST(FolderLock, AnotherProcessWithTheNumberOfADeadOneDoesNotHold) {
  const TempFolder folder;
  LockHolder dead = LockHolder::self();  // our number, but another start
  dead.process_start -= 1;
  write_file(folder / "run.lock", dead.to_text());
  const FolderLock lock(folder.path(), {.system_locks = false});
  EXPECT_TRUE(lock.taken_over_from());
}

// A holder on another machine: the system's lock may not reach there, so it is alive if it touches
// the file.
TEST(FolderLock, AHolderElsewhereIsAliveAsLongAsItTouchesTheFile) {
  const TempFolder folder;
  FolderLockOptions elsewhere{.touch = 40ms, .system_locks = false};
  elsewhere.self.host = "node7";
  elsewhere.self.boot = "another boot";
  const FolderLockOptions here{.touch = 40ms, .system_locks = false};
  const pid_t child = hold_in_child(folder.path(), elsewhere);
  EXPECT_THAT(refusal(folder.path(), here), HasSubstr(" on node7, since "));
  kill_and_wait(child);
  const FolderLock lock(folder.path(), here);
  ASSERT_TRUE(lock.taken_over_from());
  EXPECT_EQ(lock.taken_over_from()->host, "node7");
}

// Two machines, or containers, of one name: the boot tells them apart, and nothing says that the
// other one is dead.
TEST(FolderLock, AMachineOfTheSameNameMayBeAlive) {
  const TempFolder folder;
  FolderLockOptions other{.touch = 40ms, .system_locks = false};
  other.self.boot = "another boot";
  const pid_t child = hold_in_child(folder.path(), other);
  const FolderLockOptions here{.touch = 40ms, .system_locks = false};
  EXPECT_THAT(refusal(folder.path(), here), HasSubstr(" is in use: "));
  kill_and_wait(child);
  const FolderLock lock(folder.path(), here);
  EXPECT_TRUE(lock.taken_over_from());
}

TEST(FolderLock, WhoLostItsFileLeavesTheNextHoldersAlone) {
  const TempFolder folder;
  auto first = std::make_unique<FolderLock>(folder.path());
  std::filesystem::remove(folder / "run.lock");
  const FolderLock second(folder.path());
  first.reset();
  EXPECT_TRUE(std::filesystem::exists(folder / "run.lock"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr(" is in use: "));
}

TEST(FolderLock, ALockFileThatIsNoLockIsTakenOver) {
  const TempFolder folder;
  for (const char* text : {"", "{", "[]", "{\"host\": 3}", "hello"}) {
    write_file(folder / "run.lock", text);
    const FolderLock lock(folder.path());
    EXPECT_FALSE(lock.taken_over_from()) << text;
  }
}

TEST(FolderLock, AFolderThatCannotBeMadeIsNamed) {
  const TempFolder folder;
  write_file(folder / "file", "");
  EXPECT_THAT(refusal(folder / "file"), HasSubstr((folder / "file").string()));
}

}  // namespace
}  // namespace phx
