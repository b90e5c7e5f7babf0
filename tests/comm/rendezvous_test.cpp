#include "phalanx/comm/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/comm/machine_key.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

LaunchEnvironment second_machine() {
  return {.launcher = "torchrun",
          .rank = 2,
          .size = 4,
          .local_rank = 0,
          .local_size = 2,
          .store_host = "node0",
          .store_port = 29501,
          .one_machine = false,
          .with_rank_zero = false,
          .job_key = "0123456789abcdef"};
}

TEST(Rendezvous, OneMachineKeepsToItself) {
  LaunchEnvironment here{.rank = 1, .size = 2, .store_host = "node0", .interface = "eth7"};
  EXPECT_EQ(addresses_to_listen_on(here), Hosts{"127.0.0.1"});
  const TcpStoreOptions options = store_options(here, 1min);
  EXPECT_EQ(options.hosts, Hosts{"127.0.0.1"}) << "whatever its own name means";
  EXPECT_EQ(options.key_file, machine_key_file(here.store_port)) << "no key is needed";
  here.rank = 0;
  EXPECT_EQ(job_key_problem(store_options(here, 1min).key.secret()), "") << "rank 0 makes one";
  EXPECT_NE(store_options(here, 1min).key.secret(), store_options(here, 1min).key.secret());
  here.job_key = "0123456789abcdef";
  EXPECT_EQ(store_options(here, 1min).key_file, Path()) << "one that was given is not written down";
}

TEST(Rendezvous, AnotherMachineCallsMasterAddrAndListensEverywhere) {
  const TcpStoreOptions options = store_options(second_machine(), 1min);
  EXPECT_EQ(options.hosts, Hosts{"node0"});
  EXPECT_EQ(addresses_to_listen_on(second_machine()), Hosts{});
  EXPECT_EQ(options.ranks_a_machine, 2);
  EXPECT_GT(options.report_every.count(), 0) << "local rank 0 says whom it waits for";
}

// A machine's own name is 127.0.1.1 to itself where /etc/hosts was written by Debian.
TEST(Rendezvous, BesideRankZeroMasterAddrDoesNotMatter) {
  LaunchEnvironment first = second_machine();
  first.rank = 1;
  first.local_rank = 1;
  first.with_rank_zero = true;
  EXPECT_EQ(store_options(first, 1min).hosts, Hosts{"127.0.0.1"});
  first.interface = "lo";
  EXPECT_EQ(store_options(first, 1min).hosts.at(0), "127.0.0.1");
}

TEST(Rendezvous, ANamedInterfaceIsTheOnlyOneThatIsListenedOn) {
  LaunchEnvironment zero = second_machine();
  zero.rank = 0;
  zero.with_rank_zero = true;
  zero.store_host = "127.0.0.1";
  zero.interface = "127.0.0.1";
  EXPECT_EQ(addresses_to_listen_on(zero), Hosts{"127.0.0.1"});
  EXPECT_EQ(store_options(zero, 1min).listen_on, Hosts{"127.0.0.1"});
  zero.interface = "eth99";
  EXPECT_THAT(error_of([&] { store_options(zero, 1min); }),
              HasSubstr("no network interface 'eth99'"));
}

TEST(Rendezvous, SeveralMachinesNeedAKeyThatCannotBeGuessed) {
  LaunchEnvironment environment = second_machine();
  environment.job_key = "";
  EXPECT_THAT(
      error_of([&] { store_options(environment, 1min); }),
      AllOf(HasSubstr("rank 2 of 4: ranks on several machines need PHX_JOB_KEY, a secret that all "
                      "of them know, and it is not set"),
            HasSubstr("export PHX_JOB_KEY="), HasSubstr("set LOCAL_WORLD_SIZE to their number")));
  environment.job_key = "secret";
  EXPECT_THAT(error_of([&] { store_options(environment, 1min); }),
              HasSubstr("PHX_JOB_KEY has 6 characters, but needs at least 16"));
}

TEST(Rendezvous, JobsWithTheSameKeyAreKeptApartByTheirNames) {
  LaunchEnvironment a = second_machine(), b = second_machine();
  a.job = "4711.0";
  b.job = "4711.1";
  EXPECT_NE(store_options(a, 1min).key.code(""), store_options(b, 1min).key.code(""));
  b.job = a.job;
  EXPECT_EQ(store_options(a, 1min).key.code(""), store_options(b, 1min).key.code(""));
}

TEST(Rendezvous, RankZeroSaysThatTheMasterIsElsewhere) {
  LaunchEnvironment zero = second_machine();
  zero.rank = zero.local_rank = 0;
  zero.with_rank_zero = true;
  zero.store_host = "192.0.2.1";
  ::testing::internal::CaptureStdout();
  store_options(zero, 1min);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("but the master's address 192.0.2.1 is not one of this machine's"));
}

}  // namespace
}  // namespace phx
