#include "phalanx/train/stop_signals.h"

#include <gtest/gtest.h>

#include <csignal>

namespace phx {
namespace {

TEST(StopSignals, AHangUpIsCaught) {
  const StopSignals signals;
  EXPECT_EQ(signals.caught(), 0);
  std::raise(SIGHUP);
  EXPECT_EQ(signals.caught(), SIGHUP);
}

TEST(StopSignals, UnderNohupAHangUpIsNothing) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignals signals;
    std::raise(SIGHUP);
    EXPECT_EQ(signals.caught(), 0);
    std::raise(SIGTERM);
    EXPECT_EQ(signals.caught(), SIGTERM);
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN);
}

TEST(StopSignals, TheFirstIsAnsweredAtOnceAndTheSecondSaysWhatAThirdDoes) {
  const StopSignals signals({.first = "stopping soon", .second = "a third one kills"});
  ::testing::internal::CaptureStderr();
  std::raise(SIGTERM);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "caught SIGTERM: stopping soon\n");
  ::testing::internal::CaptureStderr();
  std::raise(SIGTERM);
  std::raise(SIGINT);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "caught SIGINT again: a third one kills\n");
  EXPECT_EQ(signals.caught(), SIGTERM) << "the first counts";
}

TEST(StopSignals, AThirdInterruptEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignals signals({.first = "stopping soon", .second = "a third one kills"});
        for (int i = 0; i < 3; ++i) std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "caught SIGINT: stopping soon\n.*a third one kills");
}

}  // namespace
}  // namespace phx
