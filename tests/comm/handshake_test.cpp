#include "phalanx/comm/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "phalanx/comm/byte_transport.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace handshake;
using namespace std::chrono_literals;
using testing::error_of;
using ::testing::HasSubstr;

const JobKey kKey("a key that the ranks share"), kOther("a key of somebody else");

Contact contact(int port) {
  return {.what = "rank 0", .hosts = {kLoopback}, .port = port, .key = kKey, .own_rank = 3};
}

TEST(Handshake, BothSidesAcceptTheKeyThatTheyShare) {
  const Challenge challenge = make_challenge();
  const Answer answer = answer_to(challenge, kKey, 3);
  EXPECT_EQ(answer.rank, 3);
  const Verdict verdict = verdict_on(answer, challenge, kKey);
  EXPECT_EQ(verdict.accepted, 1u);
  EXPECT_TRUE(is_genuine(verdict, answer, challenge, kKey));
}

TEST(Handshake, AnotherKeyIsNotAccepted) {
  const Challenge challenge = make_challenge();
  const Answer answer = answer_to(challenge, kOther, 3);
  EXPECT_EQ(verdict_on(answer, challenge, kKey).accepted, 0u);
  EXPECT_EQ(verdict_on(answer, challenge, kKey).code, Digest{}) << "a stranger gets no code";
}

TEST(Handshake, AnAnswerHoldsForOneChallengeAndOneRank) {
  const Challenge challenge = make_challenge();
  Answer answer = answer_to(challenge, kKey, 3);
  EXPECT_EQ(verdict_on(answer, make_challenge(), kKey).accepted, 0u)
      << "heard before, and repeated";
  answer.rank = 4;
  EXPECT_EQ(verdict_on(answer, challenge, kKey).accepted, 0u);
}

TEST(Handshake, AListenerThatOnlySendsBackWhatItHeardIsNotGenuine) {
  const Challenge challenge = make_challenge();
  const Answer answer = answer_to(challenge, kKey, 3);
  const Verdict echo{.accepted = 1, .code = answer.code};
  EXPECT_FALSE(is_genuine(echo, answer, challenge, kKey));
  EXPECT_FALSE(is_genuine({.accepted = 1}, answer, challenge, kKey));
}

TEST(Handshake, ACallThatNobodyAnswersSaysWhyWhileItWaitsAndAtTheEnd) {
  const int port = listen_on(0).port;  // closed again
  std::string heard;
  try {
    call(contact(port), deadline_in(50ms), [&](const std::string& why) { heard = why; });
    ADD_FAILURE() << "somebody answered";
  } catch (const Stalled& stalled) {
    EXPECT_THAT(stalled.what(), HasSubstr("Connection refused"));
  }
  EXPECT_THAT(heard, HasSubstr("Connection refused"));
}

TEST(Handshake, SomethingElseOnThePortIsSaid) {
  const Listener listener = listen_on(0);
  std::thread other([&] {
    pollfd entry{listener.sockets[0].get(), POLLIN, 0};
    ::poll(&entry, 1, 10000);
    const std::string text = "220 mail.example.org ESMTP ready, and more\r\n";
    const FileHandle caller = accept_from(listener.sockets[0]);
    send_all(caller, std::as_bytes(std::span(text)), deadline_in(10s), "the caller");
  });
  EXPECT_THAT(error_of([&] { call(contact(listener.port), deadline_in(10s)); }),
              HasSubstr("is not a phalanx store of this version"));
  other.join();
}

}  // namespace
}  // namespace phx
