#include "train/stop_signals.h"

#include <atomic>
#include <csignal>
#include <cstddef>
#include <iterator>

namespace phx {

namespace {

// A signal handler can reach nothing but globals; these are the only ones, and belong to the
// process as its signals do.
std::atomic<int> caught_signal{0};
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
struct sigaction before[std::size(kSignals)];

void on_signal(int signal) {
  int none = 0;
  if (!caught_signal.compare_exchange_strong(none, signal) && signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}

}  // namespace

StopSignals::StopSignals() {
  caught_signal = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &action, &before[i]);
    // nohup: who asked to outlive the terminal does.
    if (kSignals[i] == SIGHUP && before[i].sa_handler == SIG_IGN)
      sigaction(kSignals[i], &before[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before[i], nullptr);
}

int StopSignals::caught() const { return caught_signal; }

const char* StopSignals::name(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "a signal";
  }
}

}  // namespace phx
