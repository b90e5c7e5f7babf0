#include "phalanx/comm/socket.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

namespace phx {
namespace {

using namespace std::chrono_literals;

struct Pair {
  FileHandle caller, called;
};
Pair connected() {
  const Listener listener = listen_on(0);
  Pair pair{.caller = connect_to(kLoopback, listener.port, deadline_in(10s))};
  pollfd entry{listener.sockets[0].get(), POLLIN, 0};
  ::poll(&entry, 1, 10000);
  pair.called = accept_from(listener.sockets[0]);
  return pair;
}

// Its system acknowledges what it was sent, and the questions after that. (A machine that does not
// answer at all needs a network to be cut off from: scripts/machines.sh, case deaths.)
TEST(Socket, APeerThatIsBusyAndDoesNotReadIsNotTakenForDead) {
  const Pair pair = connected();
  watch_over(pair.caller, 1s);
  const std::vector<std::byte> bytes(1 << 16);
  size_t sent = 0;
  while (true) {
    const ssize_t count =
        ::send(pair.caller.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) break;  // the other side's buffer is full, and ours as well
    sent += size_t(count);
  }
  EXPECT_GT(sent, 1u << 16);
  std::this_thread::sleep_for(1300ms);
  EXPECT_FALSE(is_unanswered(pair.caller, 1s));
  EXPECT_FALSE(is_unanswered(pair.called, 1s)) << "it has nothing on its way";
}

TEST(Socket, KnowsBothEndsOfAConnection) {
  const Pair pair = connected();
  EXPECT_EQ(own_address(pair.caller), kLoopback);
  EXPECT_EQ(peer_address(pair.caller), kLoopback);
  EXPECT_TRUE(is_loopback(own_address(pair.called)));
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
}

TEST(Socket, AnAddressWithColonsStandsInBrackets) {
  EXPECT_EQ(endpoint("node7", 29500), "node7:29500");
  EXPECT_EQ(endpoint("fd00::1", 29500), "[fd00::1]:29500");
}

TEST(Socket, ListensOnSeveralAddressesAtOnePort) {
  const Listener listener = listen_on(0, {"127.0.0.1", "127.0.0.2"});
  ASSERT_EQ(listener.sockets.size(), 2u);
  for (const char* host : {"127.0.0.1", "127.0.0.2"})
    EXPECT_TRUE(connect_to(host, listener.port, deadline_in(10s)).is_open()) << host;
  EXPECT_FALSE(try_to_reach({"127.0.0.3"}, listener.port, deadline_in(10s)).socket.is_open());
}

TEST(Socket, WithoutAddressesItListensOnAllOfThem) {
  const Listener listener = listen_on(0, {});
  for (const char* host : {"127.0.0.1", "127.0.0.9"})
    EXPECT_TRUE(try_to_reach({host}, listener.port, deadline_in(10s)).socket.is_open()) << host;
}

TEST(Socket, TriesAllHostsOfAMachine) {
  const Listener listener = listen_on(0, {"127.0.0.2"});
  EXPECT_TRUE(
      try_to_reach({"127.0.0.3", "127.0.0.2"}, listener.port, deadline_in(10s)).socket.is_open());
  const Reached unknown = try_to_reach({"no-such-machine.invalid"}, 1, deadline_in(10s));
  EXPECT_TRUE(unknown.unknown_name);
  EXPECT_TRUE(unknown.why.starts_with("the address no-such-machine.invalid is not known: "))
      << unknown.why;
}

}  // namespace
}  // namespace phx
