#include "phalanx/train/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <iterator>

namespace phx {

namespace {

// A signal handler can reach nothing but globals; these are the only ones, and belong to the
// process as its signals do.
std::atomic<int> caught_signal{0};
std::atomic<int> interrupts_after{0};  // Ctrl-C since then
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
struct sigaction before[std::size(kSignals)];
char first_words[512], second_words[512];
bool on_terminal = false;
// Handlers have a stack of their own: a matrix product of oneDNN that is interrupted may keep
// values below its stack pointer, where a handler's frame would go.
alignas(64) char handler_stack[1 << 16];

size_t append(char* line, size_t at, size_t room, const char* text) {
  while (*text != '\0' && at < room) line[at++] = *text++;
  return at;
}

// One write, with nothing that a signal handler may not call.
void say(int signal, const char* middle, const char* words) {
  if (*words == '\0') return;
  char line[600];
  const size_t room = sizeof line - 1;
  size_t at = append(line, 0, room, on_terminal ? "\r\033[K" : "");  // over a progress bar
  at = append(line, at, room, "caught ");
  at = append(line, at, room, StopSignals::name(signal));
  at = append(line, at, room, middle);
  at = append(line, at, room, words);
  line[at++] = '\n';
  (void)!::write(STDERR_FILENO, line, at);
}

void on_signal(int signal) {
  const int error = errno;
  int none = 0;
  if (caught_signal.compare_exchange_strong(none, signal)) {
    say(signal, ": ", first_words);
  } else if (signal == SIGINT) {
    if (interrupts_after.fetch_add(1) == 0) {
      say(signal, " again: ", second_words);
    } else {
      std::signal(SIGINT, SIG_DFL);
      std::raise(SIGINT);
    }
  }
  errno = error;
}

void keep(const std::string& words, char (&room)[512]) {
  const size_t length = words.copy(room, sizeof room - 1);
  room[length] = '\0';
}

}  // namespace

StopSignals::StopSignals(const Words& words) {
  caught_signal = 0;
  interrupts_after = 0;
  keep(words.first, first_words);
  keep(words.second, second_words);
  on_terminal = ::isatty(STDERR_FILENO) == 1;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  const stack_t stack = {.ss_sp = handler_stack, .ss_flags = 0, .ss_size = sizeof handler_stack};
  sigaltstack(&stack, nullptr);
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
