#include "comm/arrivals.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace std::chrono_literals;
using testing::error_of;

FileHandle visitor(const Listener& listener) {
  return connect_to("127.0.0.1", listener.port, deadline_in(10s));
}

void say(const FileHandle& socket, std::span<const std::byte> bytes) {
  send_all(socket, bytes, deadline_in(10s), "the listener");
}

std::span<const std::byte> bytes_of(const Hello& hello) {
  return std::as_bytes(std::span(&hello, 1));
}

TEST(Arrivals, OneThatSaysNothingHoldsNobodyUp) {
  const Listener listener = listen_on(0);
  const FileHandle silent = visitor(listener), speaker = visitor(listener);
  const Hello hello{.token = 7, .rank = 3};
  say(speaker, bytes_of(hello));
  const auto begin = std::chrono::steady_clock::now();
  const auto arrival = Arrivals(listener).next(deadline_in(60s));
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->hello.token, 7u);
  EXPECT_EQ(arrival->hello.rank, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s) << "less than a guest's time";
}

TEST(Arrivals, AHelloMayComeInPieces) {
  const Listener listener = listen_on(0);
  const FileHandle slow = visitor(listener);
  const Hello hello{.token = 7, .rank = 3};
  say(slow, bytes_of(hello).first(5));
  Arrivals arrivals(listener);
  EXPECT_FALSE(arrivals.next(deadline_in(20ms)));
  say(slow, bytes_of(hello).subspan(5));
  const auto arrival = arrivals.next(deadline_in(10s));
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->hello.rank, 3);
}

TEST(Arrivals, OneThatHangsUpIsForgotten) {
  const Listener listener = listen_on(0);
  { const FileHandle gone = visitor(listener); }
  EXPECT_FALSE(Arrivals(listener).next(deadline_in(20ms)));
}

TEST(Arrivals, OneThatSaysNothingIsDroppedAfterAWhile) {
  const Listener listener = listen_on(0);
  const FileHandle silent = visitor(listener);
  Arrivals arrivals(listener, /*patience=*/50ms);
  std::thread host([&] { EXPECT_FALSE(arrivals.next(deadline_in(2s))); });
  std::byte nothing;
  EXPECT_EQ(error_of([&] {
              receive_all(silent, {&nothing, 1}, deadline_in(1s), "the listener");
            }),
            "the connection to the listener ended");
  host.join();
}

}  // namespace
}  // namespace phx
