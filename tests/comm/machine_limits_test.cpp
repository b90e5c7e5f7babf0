#include "phalanx/comm/machine_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace phx {
namespace {

using ::testing::HasSubstr;

constexpr MachineLimits kMachine{
    .memory = 16LL << 30, .processes = 32768, .files = 4096, .cores = 8};

TEST(MachineLimits, AHundredThousandProcessesDoNotFitIntoSixteenGibibytes) {
  const auto found = lacks_room_for_processes(100000, 100000, kMachine);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->what, HasSubstr("take at least 6.10 TiB (64.0 MiB each, without a model), but "
                                     "16.0 GiB of memory are free"));
  EXPECT_EQ(found->way_out,
            "at most 256 fit, and this machine has 8 cores; --nnodes spreads ranks over machines");
  EXPECT_FALSE(lacks_room_for_processes(256, 256, kMachine));
  EXPECT_TRUE(lacks_room_for_processes(INT64_MAX, INT64_MAX, kMachine));
}

TEST(MachineLimits, ProcessesAndFilesAreCountedToo) {
  MachineLimits machine = kMachine;
  machine.processes = 100;
  EXPECT_THAT(lacks_room_for_processes(64, 64, machine)->what,
              HasSubstr("at least 3 threads each, but 100 processes and threads are allowed here"));
  EXPECT_THAT(lacks_room_for_processes(8, 8192, kMachine)->what,
              HasSubstr("needs 16672 open files for a world of 8192, but 4096 are allowed here"));
}

TEST(MachineLimits, RanksAsThreadsAreWeighedWithTheirWeights) {
  EXPECT_FALSE(lacks_room_for_threads(64, 15LL << 30, kMachine));
  const auto found = lacks_room_for_threads(4096, 15LL << 30, kMachine);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->what,
              HasSubstr("take at least 17.0 GiB, of which 15.0 GiB are weights, gradients and "
                        "optimizer state, but 16.0 GiB of memory are free"));
  EXPECT_FALSE(lacks_room_for_threads(4096, 1 << 20, kMachine));
  MachineLimits small = kMachine;
  small.cores = 2;
  EXPECT_THAT(lacks_room_for_threads(4096, 1 << 20, small)->what,
              HasSubstr("would only take turns: 512 for each core are the most"));
  EXPECT_THAT(lacks_room_for_threads(4096, 1 << 20, small)->way_out,
              HasSubstr("at most 1024 fit here, on 2 cores"));
}

TEST(MachineLimits, OfThisMachineAreSensible) {
  const MachineLimits limits = machine_limits();
  EXPECT_GT(limits.memory, 64 << 20);
  EXPECT_GT(limits.processes, 16);
  EXPECT_GT(limits.files, 64);
  EXPECT_FALSE(lacks_room_for_processes(2, 2, limits));
}

TEST(MachineLimits, TheLimitOfOpenFilesIsRaisedIfRanksNeedIt) {
  rlimit before{}, limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  limit = {.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  make_room_for_files(40);
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(limit.rlim_cur, 368u) << "two connections a rank, 256 strangers, and 32 more";
}

}  // namespace
}  // namespace phx
