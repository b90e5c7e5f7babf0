#include "phalanx/comm/local_ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "comm/run_ranks.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace std::chrono_literals;

TEST(LocalRanks, TellsEachProcessItsRank) {
  const testing::Outcome outcome = testing::run_facts_program(3, "env");
  EXPECT_FALSE(outcome.result.first_failure);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(outcome.out.at(r),
              "rank " + std::to_string(r) + " of 3, local " + std::to_string(r) + " of 3\n");
    EXPECT_EQ(outcome.error.at(r), "a word of rank " + std::to_string(r) + "\n");
  }
}

TEST(LocalRanks, RanksOfASecondMachineBeginLater) {
  std::string out;
  run_local_ranks({.command = {PHX_COMM_FACTS, "env"}, .first_rank = 4, .world_size = 5}, 3,
                  [&](int rank, OutputKind kind, std::string_view line) {
                    EXPECT_EQ(rank, 4);
                    if (kind == OutputKind::out) out = line;
                  });
  EXPECT_EQ(out, "rank 4 of 5, local 0 of 1");
}

TEST(LocalRanks, NamesTheFirstThatFailed) {
  const testing::Outcome outcome = testing::run_facts_program(8, "env");
  ASSERT_TRUE(outcome.result.first_failure);
  EXPECT_EQ(describe(*outcome.result.first_failure), "rank 7 ended with exit code 7");
}

TEST(LocalRanks, AStopIsNoFailure) {
  const LocalRanksResult result = run_local_ranks(
      {.command = {"sh", "-c", "exit 3"}, .count = 2, .world_size = 2}, 3, [](auto&&...) {});
  EXPECT_FALSE(result.first_failure);
  EXPECT_TRUE(result.stopped);
}

TEST(LocalRanks, EndsThoseThatStayBehind) {
  const auto begin = std::chrono::steady_clock::now();
  const LocalRanksResult result =
      run_local_ranks({.command = {"sh", "-c", "test $RANK != 0 || exit 5; trap '' TERM; sleep 60"},
                       .count = 2,
                       .world_size = 2,
                       .patience = 50ms,
                       .grace = 50ms},
                      3, [](auto&&...) {});
  ASSERT_TRUE(result.first_failure);
  EXPECT_EQ(result.first_failure->exit_code, 5);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(LocalRanks, PassesSignalsOn) {
  std::string said;
  const pthread_t self = ::pthread_self();
  int ready = 0;
  const LocalRanksResult result = run_local_ranks(
      {.command = {"sh", "-c",
                   "trap 'echo usr1; exit 3' USR1; echo ready; while :; do sleep 0.02; "
                   "done"},
       .count = 2,
       .world_size = 2},
      3, [&](int, OutputKind, std::string_view line) {
        if (line == "ready" && ++ready == 2) ::pthread_kill(self, SIGUSR1);
        if (line == "usr1") said += line;
      });
  EXPECT_EQ(said, "usr1usr1");
  EXPECT_TRUE(result.stopped);
  EXPECT_FALSE(result.first_failure);
}

TEST(LocalRanks, AHangUpIsPassedOnUnlessItIsIgnored) {
  const auto said_after_a_hang_up = [] {
    std::string said;
    const pthread_t self = ::pthread_self();
    run_local_ranks(
        {.command = {"sh", "-c",
                     "trap 'echo hup; exit 0' HUP; echo ready; sleep 0.3 & wait; wait"}},
        3, [&](int, OutputKind, std::string_view line) {
          if (line == "ready") ::pthread_kill(self, SIGHUP);
          said += line;
        });
    return said;
  };
  EXPECT_EQ(said_after_a_hang_up(), "readyhup");
  const auto before = ::signal(SIGHUP, SIG_IGN);  // as under nohup
  EXPECT_EQ(said_after_a_hang_up(), "ready");
  ::signal(SIGHUP, before);
}

TEST(LocalRanks, RanksOfOneMachineShareAKeyThatWasMadeForThem) {
  const auto keys = [](int world_size) {
    std::vector<std::string> keys;
    run_local_ranks(
        {.command = {"sh", "-c", "echo key $PHX_JOB_KEY"}, .count = 2, .world_size = world_size}, 3,
        [&](int, OutputKind, std::string_view line) { keys.emplace_back(line); });
    return keys;
  };
  const std::vector<std::string> first = keys(2), second = keys(2);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0], first[1]);
  EXPECT_EQ(first[0].size(), 4 + 32u) << first[0];
  EXPECT_NE(first[0], second[0]);
  EXPECT_EQ(keys(4).at(0), "key") << "on several machines it cannot be made here";
}

TEST(LocalRanks, AMissingProgramIsSaid) {
  std::string said;
  const LocalRanksResult result =
      run_local_ranks({.command = {"there-is-no-such-program"}}, 3,
                      [&](int, OutputKind, std::string_view line) { said = line; });
  ASSERT_TRUE(result.first_failure);
  EXPECT_EQ(result.first_failure->exit_code, 127);
  EXPECT_EQ(said, "the program of this rank cannot be started");
}

}  // namespace
}  // namespace phx
