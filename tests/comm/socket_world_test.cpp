#include "phalanx/comm/socket_world.h"

#include <gtest/gtest.h>

#include "comm/run_ranks.h"

namespace phx {
namespace {

TEST(SocketWorld, ARankThatThrowsIsNamedByTheOthers) {
  const testing::Outcome outcome = testing::run_facts_program(4, "throw");
  ASSERT_TRUE(outcome.result.first_failure);
  EXPECT_EQ(describe(*outcome.result.first_failure), "rank 1 ended with exit code 1");
  EXPECT_EQ(outcome.error.at(1), "error: out of coffee\n");
  for (int r : {0, 2, 3}) EXPECT_EQ(outcome.error.at(r), "error: rank 1 failed: out of coffee\n");
  EXPECT_LT(outcome.seconds, 5);
}

TEST(SocketWorld, ARankThatIsKilledIsNamedByTheOthers) {
  const testing::Outcome outcome = testing::run_facts_program(4, "kill");
  ASSERT_TRUE(outcome.result.first_failure);
  EXPECT_EQ(describe(*outcome.result.first_failure), "rank 1 was killed by signal 9 (Killed)");
  EXPECT_FALSE(outcome.error.contains(1));
  for (int r : {0, 2, 3})
    EXPECT_TRUE(outcome.error.at(r).starts_with("error: rank 1 died: its connection closed"))
        << outcome.error.at(r);
  EXPECT_LT(outcome.seconds, 5);
}

TEST(SocketWorld, ATimeOutNamesWhoDidNotEnterWhat) {
  const testing::Outcome outcome = testing::run_facts_program(3, "late");
  EXPECT_NE(outcome.error.at(0).find("nothing came for 1 s: rank 1 did not enter all_reduce #2 "
                                     "of all (f32, 7 elements), called from "
                                     "tests/comm/facts_main.cpp:"),
            std::string::npos)
      << outcome.error.at(0);
  EXPECT_NE(outcome.error.at(0).find("its last call was barrier #1 of all, called from"),
            std::string::npos)
      << outcome.error.at(0);
}

TEST(SocketWorld, ARankThatNeverArrivesIsNamedByAll) {
  const testing::Outcome outcome = testing::run_facts_program(3, "absent");
  for (int r : {0, 2}) {
    EXPECT_TRUE(outcome.error.at(r).starts_with("error: rank 1 of 3 did not arrive at 127.0.0.1:"))
        << outcome.error.at(r);
    EXPECT_NE(outcome.error.at(r).find(" within 1 s\n"), std::string::npos);
  }
}

}  // namespace
}  // namespace phx
