// The facts of tests/comm/facts.h on every backend that moves bytes: they hold, and the bytes
// agree. (Over NCCL: run the program comm_facts on a machine with GPUs.)
#include <gtest/gtest.h>
#include <stdlib.h>

#include <sstream>

#include "comm/facts.h"
#include "comm/run_ranks.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/core/runtime.h"
#include "support/gradients.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using testing::digest_in;

std::string digest_of_threads(int ranks) {
  std::vector<uint64_t> digests(ranks);
  run_thread_ranks(ranks, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
    Runtime runtime;
    digests[world.rank()] = testing::check_facts(world, runtime.device());
  });
  for (uint64_t digest : digests) EXPECT_EQ(digest, digests[0]);
  std::ostringstream text;
  text << std::hex << digests[0];
  return text.str();
}

TEST(Conformance, FactsHoldForOneThread) { digest_of_threads(1); }
TEST(Conformance, FactsHoldForFiveThreads) { digest_of_threads(5); }

void expect_sockets_agree(int ranks) {
  const testing::Outcome outcome = testing::run_facts_program(ranks, "facts");
  ASSERT_FALSE(outcome.result.first_failure)
      << describe(*outcome.result.first_failure) << outcome.error.begin()->second;
  EXPECT_EQ(outcome.error.size(), 0);
  EXPECT_EQ(digest_in(outcome.out.at(0)), digest_of_threads(ranks));
  EXPECT_NE(outcome.out.at(0).find("ranks as processes over TCP, started by phalanx launch"),
            std::string::npos);
}

TEST(Conformance, TwoSocketsAgreeWithThreadsToTheByte) { expect_sockets_agree(2); }
TEST(Conformance, FourSocketsAgreeWithThreadsToTheByte) { expect_sockets_agree(4); }

TEST(Conformance, AProcessAloneIsAWorldOfOne) {
  const auto outcome = testing::run_command(PHX_COMM_FACTS);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(digest_in(outcome.output), digest_of_threads(1));
}

#ifdef PHX_MPIRUN
testing::CommandOutcome run_mpi(const std::string& arguments) {
  const TempFolder ledgers;
  return testing::run_command("PHX_LEDGER_DIR=" + ledgers.path().string() +
                              " " PHX_MPIRUN " --allow-run-as-root --oversubscribe -n " +
                              arguments);
}

TEST(Conformance, ThreeMpiRanksAgreeWithThreadsToTheByte) {
  const auto outcome = run_mpi("3 " PHX_COMM_FACTS);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(digest_in(outcome.output), digest_of_threads(3));
  EXPECT_NE(outcome.output.find("3 ranks as processes over MPI"), std::string::npos);
}

TEST(Conformance, AnMpiRankThatThrowsEndsTheOthers) {
  const auto outcome = run_mpi("3 " PHX_COMM_FACTS " throw");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("error: out of coffee"), std::string::npos) << outcome.output;
}

TEST(Conformance, AnMpiTimeOutNamesWhoDidNotEnterWhat) {
  const auto outcome = run_mpi("3 " PHX_COMM_FACTS " late");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("nothing came for 1 s: rank 1 did not enter all_reduce #2 of all "
                                "(f32, 7 elements), called from tests/comm/facts_main.cpp:"),
            std::string::npos)
      << outcome.output;
}
#endif

// --- NCCL: ranks that share the one GPU of a test machine

PHX_CUDA_TEST(Conformance, FactsHoldForTwoNcclRanks) {
  ::setenv("PHX_SHARE_GPU", "1", 1);
  const testing::Outcome outcome = testing::run_facts_program(2, "facts", "cuda");
  ASSERT_FALSE(outcome.result.first_failure)
      << describe(*outcome.result.first_failure) << outcome.error.begin()->second;
  EXPECT_NE(outcome.out.at(0).find("2 ranks as processes over NCCL"), std::string::npos);
}

PHX_CUDA_TEST(Conformance, FactsHoldForThreeNcclRanks) {
  ::setenv("PHX_SHARE_GPU", "1", 1);
  const testing::Outcome outcome = testing::run_facts_program(3, "facts", "cuda");
  EXPECT_FALSE(outcome.result.first_failure)
      << describe(*outcome.result.first_failure) << outcome.error.begin()->second;
}

PHX_CUDA_TEST(NcclWorld, ARankThatThrowsIsNamedByTheOthers) {
  ::setenv("PHX_SHARE_GPU", "1", 1);
  const testing::Outcome outcome = testing::run_facts_program(2, "throw", "cuda");
  EXPECT_NE(outcome.error.at(1).find("error: out of coffee\n"), std::string::npos);
  EXPECT_NE(outcome.error.at(0).find("error: rank 1 failed: out of coffee\n"), std::string::npos)
      << outcome.error.at(0);
}

PHX_CUDA_TEST(NcclWorld, ARankThatIsKilledIsNamedByTheOthers) {
  ::setenv("PHX_SHARE_GPU", "1", 1);
  const testing::Outcome outcome = testing::run_facts_program(2, "kill", "cuda");
  ASSERT_TRUE(outcome.result.first_failure);
  EXPECT_EQ(describe(*outcome.result.first_failure), "rank 1 was killed by signal 9 (Killed)");
  EXPECT_NE(outcome.error.at(0).find("error: rank 1 died: its connection closed"),
            std::string::npos)
      << outcome.error.at(0);
}

PHX_CUDA_TEST(NcclWorld, ATimeOutNamesWhoDidNotEnterWhat) {
  ::setenv("PHX_SHARE_GPU", "1", 1);
  const testing::Outcome outcome = testing::run_facts_program(2, "late", "cuda");
  EXPECT_NE(outcome.error.at(0).find("rank 1 did not enter "), std::string::npos)
      << outcome.error.at(0);
}

}  // namespace
}  // namespace phx
