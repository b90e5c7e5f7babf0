// Who connects to a listener, and says who it is. A connection that sends nothing, or something
// else (a port scanner, a health check), holds nobody up: all of them are waited for at once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/socket.h"

namespace phx {

// The first thing that a rank sends on a new connection.
struct Hello {
  uint64_t token = 0;  // of this world
  int64_t rank = 0;
};

class Arrivals {
 public:
  // A rank sends its hello right after it has connected; one that has not said all of it within
  // `patience` is dropped.
  explicit Arrivals(const Listener& listener,
                    std::chrono::milliseconds patience = std::chrono::seconds(5))
      : listener_(listener), patience_(patience) {}

  struct Arrival {
    FileHandle socket;
    Hello hello;
  };
  // The next whose hello is complete, whatever it says; nothing after the deadline.
  std::optional<Arrival> next(Deadline deadline);

 private:
  struct Guest {
    Arrival arrival;
    size_t got = 0;
    Deadline leaves;  // if it has not said everything by then
  };
  enum class State { waiting, complete, gone };
  void wait(Deadline deadline) const;
  static State listen_to(Guest& guest);

  const Listener& listener_;
  std::chrono::milliseconds patience_;
  std::vector<Guest> guests_;
};

}  // namespace phx
