#include "phalanx/comm/machine_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "phalanx/comm/tcp_store.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

// A folder of this user alone, gone at the end.
class MachineKey : public ::testing::Test {
 protected:
  const std::string name_ = str_cat("phalanx-test-", ::getpid());
  const Path folder_ = private_folder(name_, "ask");
  const Path file_ = folder_ / "key";
  ~MachineKey() override { std::filesystem::remove_all(folder_); }
};

mode_t mode_of(const Path& path) {
  struct stat found {};
  EXPECT_EQ(::stat(path.c_str(), &found), 0);
  return found.st_mode & 0777;
}

TEST_F(MachineKey, IsInAFileThatOthersCannotReadWhileItIsNeeded) {
  EXPECT_EQ(read_machine_key(file_), std::nullopt);
  {
    const MachineKeyFile first(file_, "the first secret");
    EXPECT_EQ(read_machine_key(file_), "the first secret");
    EXPECT_EQ(mode_of(file_), 0600u);
    EXPECT_EQ(mode_of(folder_), 0700u);
  }
  EXPECT_EQ(read_machine_key(file_), std::nullopt);
}

TEST_F(MachineKey, AFileThatOthersCouldHaveWrittenIsNotRead) {
  const MachineKeyFile own(file_, "a secret");
  ASSERT_EQ(::chmod(file_.c_str(), 0644), 0);
  EXPECT_THAT(error_of([&] { read_machine_key(file_); }),
              AllOf(HasSubstr("that nobody else can read or write"),
                    HasSubstr("hint: remove it, or set PHX_JOB_KEY")));
  ASSERT_EQ(::chmod(file_.c_str(), 0600), 0);
  ASSERT_EQ(::symlink(file_.c_str(), (folder_ / "link").c_str()), 0);
  EXPECT_THAT(error_of([&] { read_machine_key(folder_ / "link"); }),
              HasSubstr("is not a file of this user"));
}

TEST_F(MachineKey, AFolderThatIsALinkOrAnotherUsersIsNotUsed) {
  const Path link = folder_.parent_path() / (name_ + "-link");
  ASSERT_EQ(::symlink(folder_.c_str(), link.c_str()), 0);
  EXPECT_THAT(error_of([&] { private_folder(name_ + "-link", "use another"); }),
              AllOf(HasSubstr("is not a folder of this user"), HasSubstr("hint: use another")));
  std::filesystem::remove(link);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  EXPECT_EQ(mode_of(private_folder(name_, "ask")), 0700u) << "an own one is closed to others";
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(::chown(folder_.c_str(), 12345, 12345), 0);
  EXPECT_THAT(error_of([&] { private_folder(name_, "ask"); }),
              HasSubstr("is not a folder of this user"));
}

// Rank 1 starts first, and finds what a run that was killed left.
TEST_F(MachineKey, ARankThatReadAnOldKeyReadsAgain) {
  auto old = std::make_unique<MachineKeyFile>(file_, "the key of an earlier run");
  const int port = listen_on(0).port;
  TcpStoreOptions options{.port = port, .rank = 1, .size = 2, .timeout = 20s, .key_file = file_};
  std::thread one([&, options] {
    TcpStore store(options);
    store.set("word", "heard");
  });
  std::this_thread::sleep_for(50ms);  // it has the old one, and calls
  ::testing::internal::CaptureStdout();
  options.rank = 0;
  options.key = JobKey("the key of this run");
  {
    TcpStore store(options);
    EXPECT_EQ(store.get("word"), "heard");
    while (std::filesystem::exists(file_)) std::this_thread::sleep_for(1ms);  // all are there
    one.join();
  }
  ::testing::internal::GetCapturedStdout();
  old.reset();
}

TEST_F(MachineKey, WhoDoesNotHaveTheFileCannotJoin) {
  const int port = listen_on(0).port;
  ::testing::internal::CaptureStdout();
  std::thread zero([&] {
    (void)error_of([&] {
      TcpStore({.port = port,
                .size = 2,
                .timeout = 500ms,
                .key = JobKey("the key of this run"),
                .key_file = file_});
    });
  });
  EXPECT_THAT(error_of([&] {
                TcpStore({.port = port,
                          .rank = 1,
                          .size = 2,
                          .timeout = 20s,
                          .key = JobKey(str_cat("one machine, port ", port))});
              }),
              HasSubstr(" has another job key than this rank"));
  EXPECT_THAT(error_of([&] {
                TcpStore({.port = port,
                          .rank = 1,
                          .size = 2,
                          .timeout = 50ms,
                          .key_file = folder_ / "elsewhere"});
              }),
              HasSubstr("rank 1 of 2 found no rank 0 within 0.05 s: it has left no key in "));
  zero.join();
  ::testing::internal::GetCapturedStdout();
}

}  // namespace
}  // namespace phx
