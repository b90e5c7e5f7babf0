#include "phalanx/comm/arrivals.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"

namespace phx {

using namespace handshake;

namespace {

constexpr int kAcceptsARound = 8;

// A caller says nothing more before it has heard the verdict.
bool has_hung_up(const FileHandle& socket) {
  char byte;
  const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

// Small enough for the buffer of a fresh connection: it is sent whole, or there is no connection.
template <class T>
bool send_at_once(const FileHandle& socket, const T& message) {
  return ::send(socket.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         ssize_t(sizeof message);
}

}  // namespace

Arrivals::Arrivals(Listener listener, JobKey key, std::string what, const Limits& limits)
    : listener_(std::move(listener)),
      key_(std::move(key)),
      what_(std::move(what)),
      limits_(limits) {}

Arrivals::Arrivals(Listener listener, JobKey key, std::string what)
    : Arrivals(std::move(listener), std::move(key), std::move(what), Limits{}) {}

Arrivals::~Arrivals() {
  if (turned_away_ > 0) say_turned_away();
}

std::optional<Arrivals::Arrival> Arrivals::next(Deadline deadline) {
  while (true) {
    // One at a time: the others stay where they are, in the system or among the strangers.
    accept_some();
    for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
      const State state = listen_to(*stranger);
      if (state == State::waiting) {
        ++stranger;
        continue;
      }
      Arrival arrival = std::move(stranger->arrival);
      stranger = strangers_.erase(stranger);
      if (state == State::known) return arrival;
    }
    if (milliseconds_until(deadline) == 0) return std::nullopt;
    std::vector<pollfd> entries;
    Deadline until = deadline;
    watch(entries, until);
    const int ready = ::poll(entries.data(), entries.size(), milliseconds_until(until));
    PHX_CHECK(ready >= 0 || errno == EINTR, "poll failed: ", system_text(errno));
  }
}

void Arrivals::watch(std::vector<pollfd>& entries, Deadline& until) const {
  if (milliseconds_until(rests_) > 0)
    until = std::min(until, rests_);
  else
    for (const FileHandle& socket : listener_.sockets) entries.push_back({socket.get(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) {
    entries.push_back({stranger.arrival.socket.get(), POLLIN, 0});
    until = std::min(until, stranger.leaves);
  }
}

std::vector<Arrivals::Arrival> Arrivals::look() {
  std::vector<Arrival> arrivals;
  while (auto arrival = next(deadline_in({}))) arrivals.push_back(std::move(*arrival));
  return arrivals;
}

// A few at a time: a flood must not keep us from those who are here already. While all of them may
// still stay, others wait in the system's queue.
void Arrivals::accept_some() {
  if (milliseconds_until(rests_) > 0) return;
  const auto rest = [&] { rests_ = deadline_in(std::chrono::milliseconds(100)); };
  for (const FileHandle& socket : listener_.sockets) {
    for (int i = 0; i < kAcceptsARound; ++i) {
      const bool full = strangers_.size() >= limits_.strangers;
      const auto first = full ? first_to_go() : strangers_.end();
      if (full && milliseconds_until(first->may_go) > 0) {
        rest();
        rests_ = std::min(rests_, first->may_go);
        return;
      }
      FileHandle caller = accept_from(socket);
      if (!caller.is_open()) {
        if (errno == EINTR || errno == ECONNABORTED) continue;  // the caller has gone again
        if (errno != EAGAIN) {
          // Out of descriptors, or of memory for connections.
          if (!strangers_.empty() && milliseconds_until(first_to_go()->may_go) == 0)
            send_away(first_to_go());
          rest();
        }
        break;
      }
      if (full) send_away(first);
      welcome(std::move(caller));
    }
  }
}

void Arrivals::welcome(FileHandle caller) {
  Stranger stranger{.arrival = {.socket = std::move(caller)},
                    .challenge = make_challenge(),
                    .may_go = deadline_in(limits_.stay),
                    .leaves = deadline_in(limits_.patience)};
  try {
    stranger.arrival.address = peer_address(stranger.arrival.socket);
  } catch (const Error&) {
    return;  // gone again
  }
  if (send_at_once(stranger.arrival.socket, stranger.challenge))
    strangers_.push_back(std::move(stranger));
}

// The oldest of those who come from the address with the most strangers: a machine that floods this
// one has to do with itself. If several addresses have as many, the oldest of all.
std::list<Arrivals::Stranger>::iterator Arrivals::first_to_go() {
  std::map<std::string, size_t> count;
  size_t most = 0;
  for (const Stranger& stranger : strangers_)
    most = std::max(most, ++count[stranger.arrival.address]);
  return std::find_if(strangers_.begin(), strangers_.end(), [&](const Stranger& stranger) {
    return count[stranger.arrival.address] == most;
  });
}

void Arrivals::send_away(std::list<Stranger>::iterator stranger) {
  turn_away(*stranger, "was one of too many at once");
  strangers_.erase(stranger);
}

Arrivals::State Arrivals::listen_to(Stranger& stranger) {
  const std::span<std::byte> answer = std::as_writable_bytes(std::span(&stranger.answer, 1));
  while (stranger.got < answer.size()) {
    const std::span<std::byte> rest = answer.subspan(stranger.got);
    const ssize_t got =
        ::recv(stranger.arrival.socket.get(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (got > 0)
      stranger.got += size_t(got);
    else if (got < 0 && errno == EAGAIN)
      return milliseconds_until(stranger.leaves) > 0
                 ? State::waiting
                 : turn_away(stranger, "did not answer the challenge in time");
    else if (got == 0 || errno != EINTR)
      return turn_away(stranger, "hung up before it answered the challenge");
  }
  const Verdict verdict = verdict_on(stranger.answer, stranger.challenge, key_);
  const bool sent = send_at_once(stranger.arrival.socket, verdict);
  if (verdict.accepted != 1)
    return turn_away(stranger, "does not know the job's key (PHX_JOB_KEY)");
  if (!sent || has_hung_up(stranger.arrival.socket)) return turn_away(stranger, "hung up");
  stranger.arrival.rank = stranger.answer.rank;
  return State::known;
}

Arrivals::State Arrivals::turn_away(const Stranger& stranger, const std::string& why) {
  ++turned_away_;
  latest_ = str_cat("from ", stranger.arrival.address, ", which ", why);
  if (milliseconds_until(next_line_) == 0) say_turned_away();
  return State::gone;
}

void Arrivals::say_turned_away() {
  log_warning(turned_away_ == 1 ? str_cat(what_, " on port ", listener_.port,
                                          " turned away a connection ", latest_)
                                : str_cat(what_, " on port ", listener_.port, " turned away ",
                                          turned_away_, " connections, the latest ", latest_));
  turned_away_ = 0;
  next_line_ = deadline_in(limits_.between_lines);
}

}  // namespace phx
