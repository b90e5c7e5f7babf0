#include "phalanx/comm/call_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace phx {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

TEST(CallGate, LetsNobodyInOnceItIsClosed) {
  CallGate gate;
  EXPECT_TRUE(gate.enter());
  gate.leave();
  gate.close();
  EXPECT_FALSE(gate.enter());
  EXPECT_TRUE(gate.wait_until_empty(Clock::now()));
}

TEST(CallGate, WaitsForWhoIsInside) {
  CallGate gate;
  ASSERT_TRUE(gate.enter());
  gate.close();
  EXPECT_FALSE(gate.wait_until_empty(Clock::now() + 20ms)) << "somebody is stuck in a call";
  std::thread caller([&] {
    std::this_thread::sleep_for(20ms);
    gate.leave();
  });
  EXPECT_TRUE(gate.wait_until_empty(Clock::now() + 60s));
  caller.join();
}

// The object is ended while callers go in and out: none of them ever finds it ended.
TEST(CallGate, NobodyUsesWhatIsBeingEnded) {
  for (int round = 0; round < 50; ++round) {
    CallGate gate;
    std::atomic<bool> ended{false};
    std::atomic<int> used_after_end{0}, calls{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i)
      callers.emplace_back([&] {
        while (gate.enter()) {
          std::this_thread::yield();
          if (ended) ++used_after_end;
          ++calls;
          gate.leave();
        }
      });
    while (calls == 0) std::this_thread::yield();
    gate.close();
    EXPECT_TRUE(gate.wait_until_empty(Clock::now() + 60s));
    ended = true;
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(used_after_end, 0);
  }
}

}  // namespace
}  // namespace phx
