// Who connects to a listener, and shows that it knows the job's key. Until then a connection is a
// stranger's: not more than an answer of fixed size is read from it, for a few seconds, and there
// are never more than a few hundred (or as many as there are ranks). All of them are served at
// once, so none holds up another, and each has a second at least before it gives way to a newer
// one. Strangers that were turned away are told in the log, a line every few seconds at most.
#pragma once

#include <poll.h>

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "phalanx/comm/handshake.h"
#include "phalanx/comm/socket.h"

namespace phx {

class Arrivals {
 public:
  struct Limits {
    std::chrono::milliseconds patience = std::chrono::seconds(5);  // for the whole answer
    size_t strangers = 256;                                        // at once
    std::chrono::milliseconds stay = std::chrono::seconds(1);  // before one gives way to another
    std::chrono::milliseconds between_lines = std::chrono::seconds(5);
  };
  // `what` is for the log: "the TCP store".
  Arrivals(Listener listener, JobKey key, std::string what, const Limits& limits);
  Arrivals(Listener listener, JobKey key, std::string what);
  ~Arrivals();  // nobody can connect from here on
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  struct Arrival {
    FileHandle socket;
    int rank = -1;        // as the caller says, who knows the key
    std::string address;  // from which it called
  };
  // The next who knows the key; nothing after the deadline.
  std::optional<Arrival> next(Deadline deadline);

  // The same for a caller with a poll() of its own: what to wait for and until when, and who has
  // come since the last look.
  void watch(std::vector<pollfd>& entries, Deadline& until) const;
  std::vector<Arrival> look();

  int port() const { return listener_.port; }

 private:
  struct Stranger {
    Arrival arrival;
    handshake::Challenge challenge;
    handshake::Answer answer;
    size_t got = 0;
    Deadline may_go;  // to make room for another
    Deadline leaves;  // if it has not said everything by then
  };
  enum class State { waiting, known, gone };
  void accept_some();
  void welcome(FileHandle caller);
  std::list<Stranger>::iterator first_to_go();
  void send_away(std::list<Stranger>::iterator stranger);
  State listen_to(Stranger& stranger);
  State turn_away(const Stranger& stranger, const std::string& why);
  void say_turned_away();

  Listener listener_;
  const JobKey key_;
  const std::string what_;
  const Limits limits_;
  std::list<Stranger> strangers_;  // in the order of their coming
  Deadline rests_;                 // while there is no room for another connection

  int64_t turned_away_ = 0;  // since the last line
  std::string latest_;
  Deadline next_line_;
};

}  // namespace phx
