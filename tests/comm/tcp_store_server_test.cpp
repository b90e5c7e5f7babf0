#include "phalanx/comm/tcp_store_server.h"

#include <gtest/gtest.h>

#include <cstring>

namespace phx {
namespace {

using namespace std::chrono_literals;
using namespace store_wire;

const JobKey kKey("a key that the ranks share");

// A rank that speaks the wire's language by hand.
class Client {
 public:
  explicit Client(int port, int rank)
      : socket_(call({.what = "the store",
                      .hosts = {kLoopback},
                      .port = port,
                      .key = kKey.with(kPurpose),
                      .own_rank = rank},
                     deadline_in(10s))) {}

  void say(const RequestHeader& header, const std::string& key, const std::string& value) {
    send_all(socket_, std::as_bytes(std::span(&header, 1)), deadline_in(10s), "the store");
    const std::string body = key + value;
    send_all(socket_, std::as_bytes(std::span(body)), deadline_in(10s), "the store");
  }
  struct Reply {
    Status status;
    std::string value;
  };
  Reply hear() {
    ReplyHeader header;
    receive_all(socket_, std::as_writable_bytes(std::span(&header, 1)), deadline_in(10s), "it");
    std::string value(header.value_bytes, '?');
    receive_all(socket_, std::as_writable_bytes(std::span(value)), deadline_in(10s), "it");
    return {Status(header.status), value};
  }
  Reply ask(Request kind, const std::string& key, const std::string& value = "",
            std::chrono::milliseconds timeout = 10s) {
    say({.kind = kind,
         .key_bytes = uint32_t(key.size()),
         .value_bytes = uint32_t(value.size()),
         .timeout_ms = timeout.count()},
        key, value);
    return hear();
  }
  Reply hello(int rank, int size) {
    const int32_t who[2] = {rank, size};
    std::string value(sizeof who, '\0');
    std::memcpy(value.data(), who, sizeof who);
    return ask(Request::hello, "", value + "node7");
  }
  bool is_hung_up() {
    try {
      hear();
      return false;
    } catch (const ConnectionEnded&) {
      return true;
    }
  }

 private:
  FileHandle socket_;
};

struct Server {
  int port = listen_on(0).port;
  TcpStoreServer server;
  explicit Server(int size) : server({.port = port, .size = size, .timeout = 20s, .key = kKey}) {}
};

TEST(TcpStoreServer, ARankComesOnceAndIsOfThisWorld) {
  Server at(3);
  Client one(at.port, 1), again(at.port, 1), large(at.port, 7), other(at.port, 2);
  EXPECT_EQ(one.hello(1, 3).status, Status::ok);
  const auto twice = again.hello(1, 3);
  EXPECT_EQ(twice.status, Status::refused);
  EXPECT_EQ(twice.value, "a rank 1 is there already");
  EXPECT_EQ(large.hello(7, 3).value, "rank 7 is out of range: its ranks are 0 to 2");
  EXPECT_EQ(other.hello(2, 4).value, "it serves a world of 3 ranks, and this is rank 2 of 4");
}

TEST(TcpStoreServer, WhoWaitsInVainForAllHearsWhoIsMissing) {
  Server at(4);
  Client two(at.port, 2);
  EXPECT_EQ(two.hello(2, 4).status, Status::ok);
  const auto reply = two.ask(Request::get, kArrived, "", 20ms);
  EXPECT_EQ(reply.status, Status::timed_out);
  EXPECT_EQ(reply.value, "ranks 0, 1 and 3 of 4");
  EXPECT_EQ(two.ask(Request::get, "id", "", 20ms).value, "") << "of other names nothing is said";
}

TEST(TcpStoreServer, ValuesMayBeReplacedAndLookedUpWithoutWaiting) {
  Server at(2);
  Client one(at.port, 1);
  one.hello(1, 2);
  EXPECT_EQ(one.ask(Request::find, "id").status, Status::none);
  one.ask(Request::set, "id", "7");
  one.ask(Request::set, "id", std::string("8\0x", 3));
  EXPECT_EQ(one.ask(Request::find, "id").value, std::string("8\0x", 3));
  EXPECT_EQ(one.ask(Request::get, "id").value.size(), 3u);
}

TEST(TcpStoreServer, TheFirstFailureStaysAndAnswersWhoWaits) {
  Server at(3);
  Client one(at.port, 1), two(at.port, 2);
  one.hello(1, 3);
  two.hello(2, 3);
  one.say({.kind = Request::get, .key_bytes = 5, .timeout_ms = 10000}, "never", "");
  EXPECT_EQ(two.ask(Request::fail, "", "rank 2 failed").status, Status::ok);
  two.ask(Request::fail, "", "and again");
  const auto heard = one.hear();
  EXPECT_EQ(heard.status, Status::failed);
  EXPECT_EQ(heard.value, "rank 2 failed");
}

TEST(TcpStoreServer, WhatIsNoRequestOrTooLargeEndsTheConnection) {
  Server at(2);
  Client strange(at.port, 1), large(at.port, 1), unknown(at.port, 1);
  strange.say({.magic = 1}, "", "");
  EXPECT_TRUE(strange.is_hung_up());
  large.say({.kind = Request::set, .key_bytes = 1, .value_bytes = 64 << 20}, "k", "");
  EXPECT_TRUE(large.is_hung_up());
  unknown.say({.kind = 77}, "", "");
  EXPECT_TRUE(unknown.is_hung_up());
}

TEST(TcpStoreServer, AGoodbyeIsWaitedForAndNoFailure) {
  Server at(3);
  Client two(at.port, 2);
  two.hello(2, 3);
  {
    Client one(at.port, 1);
    one.hello(1, 3);
    EXPECT_EQ(one.ask(Request::goodbye, "").status, Status::ok);
  }
  EXPECT_EQ(two.ask(Request::get, "never", "", 20ms).status, Status::timed_out);
  const auto begin = std::chrono::steady_clock::now();
  at.server.wait_for_goodbyes(deadline_in(50ms));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 40ms) << "rank 2 is still there";
}

}  // namespace
}  // namespace phx
