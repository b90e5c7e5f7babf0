#include "train/stop_signals.h"

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

}  // namespace
}  // namespace phx
