// Ctrl-C and the signals of job managers: the loop finishes its iteration, saves and stops. The
// first signal is answered at once, on standard error. A second Ctrl-C says what a third one does:
// it ends the process at once.
#pragma once

#include <string>

namespace phx {

class StopSignals {
 public:
  // What the process says while it is still busy: "caught SIGINT: <first>". Empty: nothing, as of a
  // rank whose neighbour says it.
  struct Words {
    std::string first;
    std::string second;  // after "caught SIGINT again: "
  };
  // SIGINT, SIGTERM, SIGUSR1 and SIGHUP are caught from here on; under nohup SIGHUP stays ignored.
  StopSignals() : StopSignals(Words{}) {}
  explicit StopSignals(const Words& words);
  ~StopSignals();  // and are what they were before from here on
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int caught() const;  // the signal's number; 0: none yet
  static const char* name(int signal);
};

}  // namespace phx
