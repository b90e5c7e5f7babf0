#include "phalanx/comm/tcp_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

// `body` on a thread for each rank, with its store.
void run_stores(int size, const std::function<void(int rank, TcpStore& store)>& body) {
  const int port = listen_on(0).port;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      TcpStore store({.port = port, .rank = rank, .size = size, .timeout = 20s});
      body(rank, store);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(TcpStore, AValueThatOneSetsAllGet) {
  const std::string large(100000, 'x');
  run_stores(4, [&](int rank, TcpStore& store) {
    if (rank == 2) {
      std::this_thread::sleep_for(20ms);  // the others wait
      store.set("id", large);
      store.set("empty", "");
    }
    EXPECT_EQ(store.get("id"), large);
    EXPECT_EQ(store.get("empty"), "");
    EXPECT_EQ(store.find("nothing"), std::nullopt);
    EXPECT_EQ(store.failure(), std::nullopt);
  });
}

TEST(TcpStore, AGetThatNobodyAnswersTimesOut) {
  run_stores(1, [](int, TcpStore& store) {
    EXPECT_EQ(error_of([&] { store.get("id", 50ms); }),
              "nobody put 'id' into the TCP store within 0.05 s");
    store.set("id", "7");
    EXPECT_EQ(store.get("id"), "7") << "it works on after that";
  });
}

TEST(TcpStore, AFailureEndsTheWaitsOfAll) {
  run_stores(3, [](int rank, TcpStore& store) {
    if (rank == 1) {
      store.fail("rank 1 failed: out of coffee");
    } else {
      EXPECT_EQ(error_of([&] { store.get("never"); }), "rank 1 failed: out of coffee");
      EXPECT_EQ(store.failure(), "rank 1 failed: out of coffee");
    }
  });
}

TEST(TcpStore, ARankThatLeavesWithoutAWordHasDied) {
  run_stores(3, [](int rank, TcpStore& store) {
    if (rank == 2)
      store.abandon();
    else
      EXPECT_EQ(error_of([&] { store.get("never"); }), "rank 2 died: its connection closed");
  });
}

// Rank 1 is the first to lose patience; what it finds is what all say.
TEST(TcpStore, NamesTheRanksThatDoNotArrive) {
  const int port = listen_on(0).port;
  const std::string expected =
      "ranks 2 and 3 of 4 did not arrive at 127.0.0.1:" + std::to_string(port) + " within 0.2 s";
  std::thread one([&] {
    EXPECT_EQ(error_of([&] { TcpStore({.port = port, .rank = 1, .size = 4, .timeout = 200ms}); }),
              expected);
  });
  EXPECT_EQ(error_of([&] { TcpStore({.port = port, .rank = 0, .size = 4, .timeout = 20s}); }),
            expected);
  one.join();
}

TEST(TcpStore, SaysThatThereIsNoRankZero) {
  const int port = listen_on(0).port;
  const std::string error =
      error_of([&] { TcpStore({.port = port, .rank = 1, .size = 2, .timeout = 50ms}); });
  EXPECT_TRUE(error.starts_with("rank 1 of 2 found no rank 0 within 0.05 s: 127.0.0.1:" +
                                std::to_string(port) + " does not answer: Connection refused"))
      << error;
}

TEST(TcpStore, SaysThatTheMastersNameIsNotKnown) {
  const std::string error = error_of([] {
    TcpStore(
        {.hosts = {"no-such-machine.invalid"}, .port = 1, .rank = 1, .size = 2, .timeout = 50ms});
  });
  EXPECT_THAT(error, AllOf(HasSubstr("the address no-such-machine.invalid is not known: "),
                           HasSubstr("hint: --master-addr or MASTER_ADDR must be a name")));
}

TEST(TcpStore, RefusesARankOfAnotherWorld) {
  const int port = listen_on(0).port;
  std::thread zero([&] {
    (void)error_of([&] { TcpStore({.port = port, .rank = 0, .size = 2, .timeout = 300ms}); });
  });
  const std::string error =
      error_of([&] { TcpStore({.port = port, .rank = 1, .size = 3, .timeout = 5s}); });
  EXPECT_NE(error.find("it serves a world of 2 ranks, and this is rank 1 of 3"), std::string::npos)
      << error;
  zero.join();
}

TEST(TcpStore, ARankThatIsOutOfRangeIsToldSo) {
  const int port = listen_on(0).port;
  std::thread zero([&] {
    (void)error_of([&] { TcpStore({.port = port, .rank = 0, .size = 2, .timeout = 300ms}); });
  });
  EXPECT_THAT(error_of([&] { TcpStore({.port = port, .rank = 5, .size = 2, .timeout = 5s}); }),
              HasSubstr("rank 5 is out of range: its ranks are 0 to 1"));
  zero.join();
}

// poll() refuses more descriptors than a process may have.
TEST(TcpStore, WhatGoesWrongInTheServerIsToldToAll) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::promise<void> told;
  run_stores(2, [&](int rank, TcpStore& store) {
    if (rank == 0) {
      store.set("here", "");
      told.get_future().wait();
      return;
    }
    store.get("here");
    std::this_thread::sleep_for(100ms);  // the server sleeps
    const rlimit one{.rlim_cur = 1, .rlim_max = before.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &one), 0);
    EXPECT_EQ(error_of([&] { store.get("never"); }),
              "rank 0's TCP store failed: poll failed: Invalid argument");
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    told.set_value();
  });
}

TEST(TcpStore, SaysWhoIsMissingWhileItWaits) {
  const int port = listen_on(0).port;
  ::testing::internal::CaptureStdout();
  const std::string error = error_of([&] {
    TcpStore({.port = port,
              .size = 6,
              .timeout = 300ms,
              .one_machine = false,
              .ranks_a_machine = 2,
              .report_every = 50ms});
  });
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(log,
              HasSubstr("rank 0 waits for ranks 1 to 5 of 6 (node ranks 0 to 2); 0 s of 0.3 s"));
  EXPECT_GE(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_THAT(error, HasSubstr("ranks 1 to 5 of 6 (node ranks 0 to 2) did not arrive at "));
}

TEST(TcpStore, SaysThatItWaitsForRankZeroAndWhy) {
  const int port = listen_on(0).port;
  ::testing::internal::CaptureStdout();
  (void)error_of([&] {
    TcpStore({.port = port, .rank = 1, .size = 2, .timeout = 300ms, .report_every = 50ms});
  });
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("rank 1 waits for rank 0: 127.0.0.1:" + std::to_string(port) +
                        " does not answer: Connection refused; 0 s of 0.3 s"));
}

TEST(TcpStore, ARankWithAnotherKeyIsToldSo) {
  const int port = listen_on(0).port;
  ::testing::internal::CaptureStdout();
  std::thread zero([&] {
    (void)error_of([&] {
      TcpStore({.port = port, .size = 2, .timeout = 500ms, .key = JobKey("one key of a job")});
    });
  });
  EXPECT_THAT(error_of([&] {
                TcpStore({.port = port,
                          .rank = 1,
                          .size = 2,
                          .timeout = 20s,
                          .key = JobKey("another job's key")});
              }),
              HasSubstr(" has another job key than this rank"));
  zero.join();
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("the TCP store on port " + std::to_string(port) +
                        " turned away a connection from 127.0.0.1"));
}

TEST(TcpStore, NobodyCanConnectWhenAllAreThere) {
  const int port = listen_on(0).port;
  const auto run = [&](int rank) {
    TcpStore store({.port = port, .rank = rank, .size = 2, .timeout = 20s});
    // The server closes it right after it told the last one: give it a moment.
    const Deadline deadline = deadline_in(10s);
    Reached reached;
    do {
      reached = try_to_reach({kLoopback}, port, deadline);
    } while (reached.socket.is_open() && milliseconds_until(deadline) > 0);
    EXPECT_THAT(reached.why, HasSubstr("Connection refused"));
    store.set(str_cat("done/", rank), "");
    store.get(str_cat("done/", 1 - rank));
  };
  std::thread one([&] { run(1); });
  run(0);
  one.join();
}

TEST(TcpStore, APortThatIsTakenIsSaid) {
  const Listener other = listen_on(0);
  EXPECT_THAT(error_of([&] { TcpStore({.port = other.port, .size = 2}); }),
              AllOf(HasSubstr("cannot listen on port " + std::to_string(other.port)),
                    HasSubstr("Address already in use\n  hint: another run may use it; choose a "
                              "free one with --master-port")));
}

}  // namespace
}  // namespace phx
