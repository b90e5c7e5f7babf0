#include "phalanx/cli/restart_policy.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

using namespace std::chrono_literals;

LocalRanksResult killed() { return {.first_failure = RankEnd{.rank = 1, .signal = 9}}; }

TEST(RestartPolicy, GivesUpAfterSoManyRestartsWithoutANewCheckpoint) {
  RestartPolicy policy(3, std::nullopt);
  EXPECT_EQ(policy.next(killed(), std::nullopt), 1s);
  EXPECT_EQ(policy.next(killed(), std::nullopt), 2s);
  EXPECT_EQ(policy.next(killed(), std::nullopt), 4s);
  EXPECT_EQ(policy.next(killed(), std::nullopt), std::nullopt);
  EXPECT_EQ(policy.total(), 3);
}

TEST(RestartPolicy, CountsAnewWhenTheRunGotFurther) {
  RestartPolicy policy(2, std::nullopt);
  EXPECT_TRUE(policy.next(killed(), std::nullopt));
  EXPECT_TRUE(policy.next(killed(), 10));  // its first checkpoint
  EXPECT_EQ(policy.in_a_row(), 1);
  EXPECT_TRUE(policy.next(killed(), 10));
  EXPECT_FALSE(policy.next(killed(), 10));
  EXPECT_TRUE(policy.next(killed(), 20));
  EXPECT_EQ(policy.total(), 4);
}

TEST(RestartPolicy, WhatARunFoundIsNoProgress) {
  RestartPolicy policy(1, 10);
  EXPECT_TRUE(policy.next(killed(), 10));
  EXPECT_FALSE(policy.next(killed(), 10));
}

TEST(RestartPolicy, ACheckpointThatComesBackIsNoProgress) {
  RestartPolicy policy(1, std::nullopt);
  EXPECT_TRUE(policy.next(killed(), 20));
  EXPECT_FALSE(policy.next(killed(), 10));  // that of 20 was damaged
  EXPECT_FALSE(policy.next(killed(), 20));
}

TEST(RestartPolicy, WaitsAMinuteAtMost) {
  RestartPolicy policy(100, std::nullopt);
  std::chrono::milliseconds last = 0ms;
  for (int i = 0; i < 50; ++i) last = *policy.next(killed(), std::nullopt);
  EXPECT_EQ(last, 60s);
}

TEST(RestartPolicy, WrongUsageAndSignalsToStopAreNoReason) {
  RestartPolicy policy(3, std::nullopt);
  LocalRanksResult usage{.first_failure = RankEnd{.rank = 0, .exit_code = 2}};
  EXPECT_FALSE(policy.next(usage, std::nullopt));
  LocalRanksResult stopped = killed();
  stopped.told_to_stop = true;
  EXPECT_FALSE(policy.next(stopped, std::nullopt));
  EXPECT_FALSE(policy.next({}, std::nullopt));
}

TEST(RestartPolicy, WithoutRestartsThereAreNone) {
  EXPECT_FALSE(RestartPolicy(0, std::nullopt).next(killed(), 5));
}

}  // namespace
}  // namespace phx
