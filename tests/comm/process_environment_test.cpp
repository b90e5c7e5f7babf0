#include "phalanx/comm/process_environment.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

using Variables = std::map<std::string, std::string>;

ProcessEnvironment made_of(const Variables& given,
                           const std::optional<LaunchEnvironment>& launch = {}) {
  return process_environment(launch, [&](const char* name) -> const char* {
    const auto found = given.find(name);
    return found == given.end() ? nullptr : found->second.c_str();
  });
}

const char* const kQueues = "CUDA_DEVICE_MAX_CONNECTIONS";

TEST(ProcessEnvironment, StreamsHaveQueuesOfTheirOwnUnlessToldOtherwise) {
  const ProcessEnvironment made = made_of({});
  EXPECT_EQ(made.variables.at(kQueues), "32");
  EXPECT_TRUE(made.notes.empty()) << "nothing of the user's was changed";
}

TEST(ProcessEnvironment, ANumberThatSufficesIsTheUsersToChoose) {
  for (const char* given : {"11", "16", "32"}) {
    const ProcessEnvironment made = made_of({{kQueues, given}});
    EXPECT_FALSE(made.variables.contains(kQueues)) << given;
    EXPECT_TRUE(made.notes.empty());
  }
}

TEST(ProcessEnvironment, TooFewQueuesAreOverriddenAndTheLogSaysSo) {
  for (const std::string given : {"1", "10", "many"}) {
    const ProcessEnvironment made = made_of({{kQueues, given}});
    EXPECT_EQ(made.variables.at(kQueues), "32");
    ASSERT_EQ(made.notes.size(), 1u);
    EXPECT_EQ(made.notes[0],
              "CUDA_DEVICE_MAX_CONNECTIONS=" + given +
                  " was given, but this run sets it to 32: each of a rank's 11 streams needs a "
                  "queue of its own on the GPU");
  }
}

TEST(ProcessEnvironment, NcclIsToldWhereToTalkOnlyIfTheUserDidNot) {
  const LaunchEnvironment two{.launcher = "torchrun", .rank = 1, .size = 2};
  EXPECT_EQ(made_of({}, two).variables.at("NCCL_SOCKET_IFNAME"), "=lo");
  EXPECT_FALSE(
      made_of({{"NCCL_SOCKET_IFNAME", "eth0"}}, two).variables.contains("NCCL_SOCKET_IFNAME"));
  EXPECT_FALSE(made_of({}).variables.contains("NCCL_SOCKET_IFNAME")) << "one rank talks to nobody";
  EXPECT_FALSE(made_of({}, two).variables.contains("NCCL_HOSTID"));
  EXPECT_EQ(made_of({{"PHX_SHARE_GPU", "1"}}, two).variables.at("NCCL_HOSTID"), "phalanx-rank-1");
}

TEST(ProcessEnvironment, WhatIsRightAlreadyIsNotSetAgain) {
  const LaunchEnvironment two{.launcher = "torchrun", .rank = 1, .size = 2};
  Variables given{{"PHX_SHARE_GPU", "1"}};
  given.merge(made_of(given, two).variables);
  EXPECT_TRUE(made_of(given, two).variables.empty());
}

}  // namespace
}  // namespace phx
