#include "phalanx/comm/wait_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace phx {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(WaitReport, SaysALineWhenItIsTimeAndNotBefore) {
  WaitReport report(20ms, 1500ms);
  ::testing::internal::CaptureStdout();
  report.say("rank 1 waits for rank 0");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "") << "it has only begun";
  std::this_thread::sleep_for(30ms);
  ::testing::internal::CaptureStdout();
  report.say("rank 1 waits for rank 0");
  report.say("rank 1 waits for rank 0");
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("rank 1 waits for rank 0; 0 s of 1.5 s"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST(WaitReport, AfterTenLinesItSpeaksAThirdAsOften) {
  WaitReport report(4ms, 10s);
  ::testing::internal::CaptureStdout();
  for (int i = 0; i < 11; ++i) {
    std::this_thread::sleep_for(6ms);
    report.say("it lasts");
  }
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 11) << log;
  const auto begin = std::chrono::steady_clock::now();
  ::testing::internal::CaptureStdout();
  std::this_thread::sleep_for(6ms);
  report.say("it lasts");
  // A loaded machine may have slept longer.
  const bool late = std::chrono::steady_clock::now() - begin > 10ms;
  const std::string more = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(late || more.empty()) << more;
}

TEST(WaitReport, NothingIsSaidWhereNothingIsAskedFor) {
  WaitReport report(0ms, 1s);
  ::testing::internal::CaptureStdout();
  std::this_thread::sleep_for(2ms);
  report.say("rank 1 waits");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

}  // namespace
}  // namespace phx
