#include "phalanx/comm/handshake.h"

#include <algorithm>
#include <thread>

#include "phalanx/comm/byte_transport.h"

namespace phx {

namespace handshake {

namespace {

template <class T>
std::string_view view_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

Nonce random_nonce() {
  Nonce nonce;
  const std::string bytes = random_bytes(nonce.size());
  std::copy(bytes.begin(), bytes.end(), nonce.begin());
  return nonce;
}

// Each side begins its message differently: nobody can send back what it was sent.
Digest code_of(const char* side, const Challenge& challenge, const Answer& answer,
               const JobKey& key) {
  return key.code(str_cat(side, view_of(challenge.version), view_of(challenge.nonce),
                          view_of(answer.nonce), view_of(answer.rank)));
}

}  // namespace

Challenge make_challenge() { return {.nonce = random_nonce()}; }

Answer answer_to(const Challenge& challenge, const JobKey& key, int rank) {
  Answer answer{.nonce = random_nonce(), .rank = rank};
  answer.code = code_of("phalanx caller", challenge, answer, key);
  return answer;
}

Verdict verdict_on(const Answer& answer, const Challenge& challenge, const JobKey& key) {
  if (!same_digest(answer.code, code_of("phalanx caller", challenge, answer, key))) return {};
  return {.accepted = 1, .code = code_of("phalanx listener", challenge, answer, key)};
}

bool is_genuine(const Verdict& verdict, const Answer& answer, const Challenge& challenge,
                const JobKey& key) {
  return same_digest(verdict.code, code_of("phalanx listener", challenge, answer, key));
}

}  // namespace handshake

namespace {

using namespace handshake;

constexpr auto kPatience = std::chrono::seconds(10);     // with one who answers, but says nothing
constexpr auto kNameMayCome = std::chrono::seconds(60);  // names of machines that start now

void shake_hands(const FileHandle& socket, const Contact& contact, Deadline deadline) {
  const std::string who = str_cat(contact.what, " at ", endpoint(contact.hosts, contact.port));
  const auto receive = [&](auto& message) {
    receive_all(socket, std::as_writable_bytes(std::span(&message, 1)), deadline, who);
  };
  Challenge challenge;
  receive(challenge);
  if (challenge.magic != kMagic || challenge.version != Challenge{}.version)
    throw_error(str_cat(who, " is not a phalanx store of this version",
                        "\n  hint: another program, or another version, may use the port; choose "
                        "a free one with --master-port, MASTER_PORT or PHX_STORE_PORT"));
  const Answer answer = answer_to(challenge, contact.key, contact.own_rank);
  send_all(socket, std::as_bytes(std::span(&answer, 1)), deadline, who);
  Verdict verdict;
  receive(verdict);
  if (verdict.magic != kMagic || verdict.accepted != 1)
    throw AnotherKey(
        str_cat(who, " has another job key than this rank",
                "\n  hint: PHX_JOB_KEY must be the same on every machine; if it is, another "
                "run uses the port: choose a free one with --master-port or MASTER_PORT"));
  PHX_CHECK(is_genuine(verdict, answer, challenge, contact.key), who,
            " does not know the job's key, though it says so: it is not part of this run");
}

// Whether the connection came to nothing, which another try may mend.
std::optional<std::string> try_to_shake_hands(const FileHandle& socket, const Contact& contact,
                                              Deadline deadline) {
  try {
    shake_hands(socket, contact, deadline);
    return std::nullopt;
  } catch (const ConnectionEnded& ended) {
    return ended.what();
  } catch (const Stalled& stalled) {
    return stalled.what();
  }
}

}  // namespace

FileHandle call(const Contact& contact, Deadline deadline, const OnWait& on_wait) {
  Deadline name_deadline = std::min(deadline, deadline_in(kNameMayCome));
  auto pause = std::chrono::milliseconds(5);
  while (true) {
    Reached reached = try_to_reach(contact.hosts, contact.port, deadline);
    if (reached.socket.is_open()) {
      const auto why =
          try_to_shake_hands(reached.socket, contact, std::min(deadline, deadline_in(kPatience)));
      if (!why) return std::move(reached.socket);
      reached.why = *why;
    }
    // A name server may fail for a moment: only a name that stays unknown is wrong.
    if (!reached.unknown_name) name_deadline = std::min(deadline, deadline_in(kNameMayCome));
    if (reached.unknown_name && milliseconds_until(name_deadline) == 0)
      throw_error(str_cat(contact.what, ": ", reached.why,
                          "\n  hint: --master-addr or MASTER_ADDR must be a name that this machine "
                          "knows, or an address"));
    if (milliseconds_until(deadline) == 0) throw Stalled(reached.why);
    if (on_wait) on_wait(reached.why);
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(
        pause, deadline - std::chrono::steady_clock::now()));
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

}  // namespace phx
