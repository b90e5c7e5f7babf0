#include "phalanx/comm/arrivals.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include "phalanx/comm/byte_transport.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

const JobKey kKey("a key that the ranks share");

FileHandle stranger(int port) { return connect_to(kLoopback, port, deadline_in(10s)); }

void say(const FileHandle& socket, std::span<const std::byte> bytes) {
  send_all(socket, bytes, deadline_in(10s), "the listener");
}

template <class T>
std::span<const std::byte> bytes_of(const T& message) {
  return std::as_bytes(std::span(&message, 1));
}

handshake::Challenge challenge_of(const FileHandle& socket) {
  handshake::Challenge challenge;
  receive_all(socket, std::as_writable_bytes(std::span(&challenge, 1)), deadline_in(10s), "it");
  return challenge;
}

// A thread that serves `arrivals`, and ends with who came.
class Host {
 public:
  explicit Host(Arrivals& arrivals, std::chrono::milliseconds time = 60s)
      : thread_([&arrivals, this, time] { arrival_ = arrivals.next(deadline_in(time)); }) {}
  const std::optional<Arrivals::Arrival>& arrival() {
    if (thread_.joinable()) thread_.join();
    return arrival_;
  }
  ~Host() { arrival(); }

 private:
  std::optional<Arrivals::Arrival> arrival_;
  std::thread thread_;
};

Contact contact(int port, const JobKey& key = kKey, int rank = 3) {
  return {.what = "rank 0", .hosts = {kLoopback}, .port = port, .key = key, .own_rank = rank};
}

TEST(Arrivals, OneWhoKnowsTheKeyIsLetIn) {
  Arrivals arrivals(listen_on(0), kKey, "a test");
  Host host(arrivals);
  const FileHandle rank = call(contact(arrivals.port()), deadline_in(10s));
  ASSERT_TRUE(host.arrival());
  EXPECT_EQ(host.arrival()->rank, 3);
  EXPECT_EQ(host.arrival()->address, kLoopback);
}

TEST(Arrivals, AnotherKeyIsRefusedAndBothSidesSayIt) {
  Arrivals arrivals(listen_on(0), kKey, "a test");
  ::testing::internal::CaptureStdout();
  Host host(arrivals, 500ms);
  EXPECT_THAT(
      error_of([&] { call(contact(arrivals.port(), JobKey("something else")), deadline_in(10s)); }),
      AllOf(HasSubstr("rank 0 at 127.0.0.1:"),
            HasSubstr(" has another job key than this rank\n  hint: PHX_JOB_KEY must be "
                      "the same on every machine")));
  EXPECT_FALSE(host.arrival());
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("a test on port "),
                    HasSubstr("turned away a connection from 127.0.0.1, which does not know the "
                              "job's key (PHX_JOB_KEY)")));
}

// Somebody who took the port, says yes to everything, and has no key.
TEST(Arrivals, AListenerWithoutTheKeyIsNotBelieved) {
  const Listener listener = listen_on(0);
  std::thread impostor([&] {
    pollfd entry{listener.sockets[0].get(), POLLIN, 0};
    ::poll(&entry, 1, 10000);
    const FileHandle caller = accept_from(listener.sockets[0]);
    say(caller, bytes_of(handshake::make_challenge()));
    handshake::Answer answer;
    receive_all(caller, std::as_writable_bytes(std::span(&answer, 1)), deadline_in(10s), "it");
    say(caller, bytes_of(handshake::Verdict{.accepted = 1, .code = answer.code}));
  });
  EXPECT_THAT(error_of([&] { call(contact(listener.port), deadline_in(10s)); }),
              HasSubstr("does not know the job's key, though it says so"));
  impostor.join();
}

TEST(Arrivals, AnAnswerHoldsForItsOwnChallengeAndRankOnly) {
  using namespace handshake;
  const Challenge challenge = make_challenge();
  const Answer answer = answer_to(challenge, kKey, 3);
  const Verdict verdict = verdict_on(answer, challenge, kKey);
  EXPECT_EQ(verdict.accepted, 1u);
  EXPECT_TRUE(is_genuine(verdict, answer, challenge, kKey));
  EXPECT_EQ(verdict_on(answer, make_challenge(), kKey).accepted, 0u) << "an old answer again";
  Answer other = answer;
  other.rank = 4;
  EXPECT_EQ(verdict_on(other, challenge, kKey).accepted, 0u);
  EXPECT_EQ(verdict_on(answer, challenge, kKey.with("mesh")).accepted, 0u);
  EXPECT_FALSE(is_genuine({.accepted = 1, .code = answer.code}, answer, challenge, kKey))
      << "what the caller sent, sent back";
}

TEST(Arrivals, OneThatSaysNothingHoldsNobodyUp) {
  Arrivals arrivals(listen_on(0), kKey, "a test");
  const FileHandle silent = stranger(arrivals.port());
  const auto begin = std::chrono::steady_clock::now();
  Host host(arrivals);
  const FileHandle rank = call(contact(arrivals.port()), deadline_in(60s));
  EXPECT_TRUE(host.arrival());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s) << "less than a stranger's time";
}

TEST(Arrivals, AnAnswerMayComeInPieces) {
  Arrivals arrivals(listen_on(0), kKey, "a test");
  const FileHandle slow = stranger(arrivals.port());
  EXPECT_FALSE(arrivals.next(deadline_in(20ms)));
  const handshake::Answer answer = answer_to(challenge_of(slow), kKey, 5);
  say(slow, bytes_of(answer).first(5));
  EXPECT_FALSE(arrivals.next(deadline_in(20ms)));
  say(slow, bytes_of(answer).subspan(5));
  const auto arrival = arrivals.next(deadline_in(10s));
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->rank, 5);
}

TEST(Arrivals, OneThatSaysNothingIsDroppedAfterAWhile) {
  Arrivals arrivals(listen_on(0), kKey, "a test", {.patience = 50ms});
  const FileHandle silent = stranger(arrivals.port());
  ::testing::internal::CaptureStdout();
  Host host(arrivals, 300ms);
  challenge_of(silent);
  std::byte nothing;
  EXPECT_EQ(error_of([&] {
              receive_all(silent, {&nothing, 1}, deadline_in(10s), "the listener");
            }),
            "the connection to the listener ended");
  EXPECT_FALSE(host.arrival());
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("which did not answer the challenge in time"));
}

TEST(Arrivals, AFloodIsBoundedAndARankComesThroughAllTheSame) {
  Arrivals arrivals(listen_on(0), kKey, "a test", {.patience = 60s, .strangers = 8, .stay = 5ms});
  ::testing::internal::CaptureStdout();
  Host host(arrivals);
  std::vector<FileHandle> flood;
  for (int i = 0; i < 50; ++i) flood.push_back(stranger(arrivals.port()));
  const FileHandle rank = call(contact(arrivals.port()), deadline_in(60s));
  ASSERT_TRUE(host.arrival());
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("which was one of too many at once"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << "a line every few seconds: " << log;
}

// A rank that takes its time comes first, and then more than there is room for.
TEST(Arrivals, AFloodLeavesEverybodyTheTimeToAnswer) {
  Arrivals arrivals(listen_on(0), kKey, "a test", {.patience = 60s, .strangers = 4, .stay = 30s});
  const FileHandle rank = stranger(arrivals.port());
  EXPECT_FALSE(arrivals.next(deadline_in(20ms)));
  std::vector<FileHandle> flood;
  for (int i = 0; i < 40; ++i) flood.push_back(stranger(arrivals.port()));
  EXPECT_FALSE(arrivals.next(deadline_in(50ms)));
  say(rank, bytes_of(answer_to(challenge_of(rank), kKey, 5)));
  const auto arrival = arrivals.next(deadline_in(10s));
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->rank, 5);
}

FileHandle stranger_from(const char* address, int port) {
  FileHandle socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in from{.sin_family = AF_INET}, to{.sin_family = AF_INET, .sin_port = htons(port)};
  ::inet_pton(AF_INET, address, &from.sin_addr);
  ::inet_pton(AF_INET, kLoopback.c_str(), &to.sin_addr);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  set_nonblocking(socket);
  return socket;
}

TEST(Arrivals, OfAddressesWithAsManyStrangersTheOldestOneGoes) {
  Arrivals arrivals(listen_on(0), kKey, "a test", {.patience = 60s, .strangers = 2, .stay = 1ms});
  const FileHandle oldest = stranger_from("127.0.0.9", arrivals.port());
  EXPECT_FALSE(arrivals.next(deadline_in(20ms)));
  const FileHandle rank = stranger_from("127.0.0.1", arrivals.port());
  EXPECT_FALSE(arrivals.next(deadline_in(20ms)));
  ::testing::internal::CaptureStdout();
  const FileHandle newest = stranger_from("127.0.0.5", arrivals.port());
  EXPECT_FALSE(arrivals.next(deadline_in(20ms)));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("from 127.0.0.9, which was one of too many at once"));
  say(rank, bytes_of(answer_to(challenge_of(rank), kKey, 5)));
  EXPECT_TRUE(arrivals.next(deadline_in(10s)));
}

TEST(Arrivals, OneThatAnswersAndHangsUpHasNotCome) {
  Arrivals arrivals(listen_on(0), kKey, "a test");
  {
    const FileHandle hasty = stranger(arrivals.port());
    EXPECT_FALSE(arrivals.next(deadline_in(20ms)));
    say(hasty, bytes_of(answer_to(challenge_of(hasty), kKey, 5)));
  }
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(arrivals.next(deadline_in(50ms)));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("which hung up"));
}

TEST(Arrivals, RandomBytesChangeNothing) {
  Arrivals arrivals(listen_on(0), kKey, "a test");
  ::testing::internal::CaptureStdout();
  Host host(arrivals);
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> noise(1 + random() % 200);
    for (std::byte& byte : noise) byte = std::byte(random());
    const FileHandle socket = stranger(arrivals.port());
    try {
      say(socket, noise);
    } catch (const ConnectionEnded&) {
      // It was turned away in the middle.
    }
  }
  const FileHandle rank = call(contact(arrivals.port()), deadline_in(60s));
  ASSERT_TRUE(host.arrival());
  EXPECT_EQ(host.arrival()->rank, 3);
  ::testing::internal::GetCapturedStdout();
}

}  // namespace
}  // namespace phx
