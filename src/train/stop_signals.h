// Ctrl-C and the signals of job managers: the loop finishes its iteration, saves and stops. A
// second Ctrl-C ends the process at once.
#pragma once

namespace phx {

class StopSignals {
 public:
  // SIGINT, SIGTERM, SIGUSR1 and SIGHUP are caught from here on; under nohup SIGHUP stays ignored.
  StopSignals();
  ~StopSignals();  // and are what they were before from here on
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int caught() const;  // the signal's number; 0: none yet
  static const char* name(int signal);
};

}  // namespace phx
