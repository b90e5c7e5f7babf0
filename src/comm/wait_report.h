// What a rank says while it waits for others: a line every few seconds, so that a start that hangs
// names whom it waits for long before the time-out does.
#pragma once

#include <chrono>
#include <string>

#include "phalanx/comm/socket.h"

namespace phx {

class WaitReport {
 public:
  // A line each `every`, and after ten of them a third as often; 0: none at all.
  WaitReport(std::chrono::milliseconds every, std::chrono::milliseconds timeout);

  // Logs `what` and how long it has lasted, if it is time to.
  void say(const std::string& what);
  std::chrono::milliseconds every() const { return every_; }

 private:
  std::chrono::milliseconds every_, timeout_;
  std::chrono::steady_clock::time_point begin_;
  Deadline next_;
  int lines_ = 0;
};

}  // namespace phx
