#include "comm/arrivals.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace phx {

std::optional<Arrivals::Arrival> Arrivals::next(Deadline deadline) {
  while (true) {
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      const State state = listen_to(*guest);
      if (state == State::waiting) {
        ++guest;
        continue;
      }
      Arrival arrival = std::move(guest->arrival);
      guest = guests_.erase(guest);
      if (state == State::complete) return arrival;
    }
    if (FileHandle socket = accept_from(listener_, deadline_in({})); socket.is_open()) {
      guests_.push_back({.arrival = {std::move(socket), {}}, .leaves = deadline_in(patience_)});
      continue;
    }
    if (milliseconds_until(deadline) == 0) return std::nullopt;
    wait(deadline);
  }
}

// Until anything happens, or somebody's time is up.
void Arrivals::wait(Deadline deadline) const {
  std::vector<pollfd> entries = {{listener_.socket.get(), POLLIN, 0}};
  for (const Guest& guest : guests_) {
    entries.push_back({guest.arrival.socket.get(), POLLIN, 0});
    deadline = std::min(deadline, guest.leaves);
  }
  const int ready = ::poll(entries.data(), entries.size(), milliseconds_until(deadline));
  PHX_CHECK(ready >= 0 || errno == EINTR, "poll failed: ", system_text(errno));
}

Arrivals::State Arrivals::listen_to(Guest& guest) {
  const std::span<std::byte> hello = std::as_writable_bytes(std::span(&guest.arrival.hello, 1));
  while (guest.got < hello.size()) {
    const std::span<std::byte> rest = hello.subspan(guest.got);
    const ssize_t got = ::recv(guest.arrival.socket.get(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (got > 0)
      guest.got += size_t(got);
    else if (got < 0 && errno == EAGAIN)
      return milliseconds_until(guest.leaves) > 0 ? State::waiting : State::gone;
    else if (got == 0 || errno != EINTR)
      return State::gone;
  }
  return State::complete;
}

}  // namespace phx
