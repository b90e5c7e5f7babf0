#include "phalanx/core/in_parallel.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace phx {
namespace {

std::string error_of(size_t count, int threads, const std::function<void(size_t)>& f) {
  try {
    in_parallel(count, threads, f);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

bool each_once(size_t count, int threads) {
  std::vector<std::atomic<int>> touched(count);
  in_parallel(count, threads, [&](size_t i) { ++touched[i]; });
  for (const auto& times : touched)
    if (times != 1) return false;
  return true;
}

TEST(InParallel, DoesEveryPieceOnce) {
  for (const int threads : {0, 1, 2, 5})
    for (const size_t count : {0u, 1u, 3u, 1000u})
      EXPECT_TRUE(each_once(count, threads)) << count << " on " << threads;
}

TEST(InParallel, PiecesRunAtTheSameTime) {
  std::barrier meeting(3);  // ends only when three pieces are under way
  in_parallel(3, 3, [&](size_t) { meeting.arrive_and_wait(); });
}

TEST(InParallel, TheErrorOfTheLowestNumberIsThrown) {
  for (int repetition = 0; repetition < 50; ++repetition) {
    std::barrier meeting(4);
    // All four are under way, and all fail, in any order.
    EXPECT_EQ(error_of(100, 4,
                       [&](size_t i) {
                         meeting.arrive_and_wait();
                         throw std::runtime_error("piece " + std::to_string(i));
                       }),
              "piece 0");
  }
}

TEST(InParallel, AfterAnErrorNothingNewIsBegun) {
  size_t begun = 0;
  EXPECT_EQ(error_of(100, 1,
                     [&](size_t i) {
                       ++begun;
                       if (i == 2) throw std::runtime_error("two");
                     }),
            "two");
  EXPECT_EQ(begun, 3u);
}

TEST(InParallel, AThreadKeepsWhatItHasFromPieceToPiece) {
  std::atomic<int> buffers = 0, pieces = 0;
  share_work(100, 3, [&](Turns& turns) {
    ++buffers;
    while (turns.next()) ++pieces;
  });
  EXPECT_EQ(buffers, 3);
  EXPECT_EQ(pieces, 100);
}

TEST(InParallel, AnErrorBehindAllPiecesIsThrown) {
  EXPECT_THROW(share_work(2, 2,
                          [](Turns& turns) {
                            while (turns.next()) {
                            }
                            throw std::runtime_error("the end");
                          }),
               std::runtime_error);
}

// Ends a process whose address space has no room for many threads' stacks: 0 if all work was done.
[[noreturn]] void work_without_room() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t room = rlim_t(pages * ::getpagesize()) + (rlim_t{64} << 20);
  const rlimit limit{room, room};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(2);
  try {
    std::vector<std::jthread> probe;
    for (int i = 0; i < 64; ++i) probe.emplace_back([] { ::usleep(1000); });
    ::_exit(3);  // there is room
  } catch (const std::system_error&) {
  }
  ::_exit(each_once(1000, 64) ? 0 : 4);
}

TEST(InParallel, ThreadsThatTheSystemDoesNotGiveAreDoneWithout) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs all of the address space";
#endif
  const pid_t child = ::fork();
  if (child == 0) work_without_room();
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace phx
