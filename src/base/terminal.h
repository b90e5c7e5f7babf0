// What the user watches: result lines on stdout, log lines on stderr, and on a terminal one status
// line that stays below them. Into a file or a pipe nothing but the lines goes: no bar, no colour.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace phx {

enum class Colour { plain, red, green, yellow, blue, grey };

enum class TerminalMode {
  automatic,  // a terminal if the stream is one, TERM is not "dumb"; colour unless NO_COLOR is set
  terminal,   // as on a terminal, with colour, 80 columns wide
  plain,      // lines only
  silent,     // nothing: the ranks beside the one that speaks
};

// Calls may come from any thread. The streams stay the caller's.
class Terminal {
 public:
  explicit Terminal(std::FILE* out = stdout, std::FILE* err = stderr,
                    TerminalMode mode = TerminalMode::automatic);
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();  // takes the status line away

  // A line above the status line, flushed. `line` has no line feed at its end.
  void print(std::string_view line);      // to out
  void print_log(std::string_view line);  // to err

  // The status line, drawn on err; nothing where err is not a terminal. It is cut to the width.
  void set_status(std::string_view line);
  void clear_status();

  bool shows_status() const { return status_on_; }
  int width() const;  // in columns
  // `text` in a colour where err takes colour, else as it is.
  std::string paint(Colour colour, std::string_view text) const;

 private:
  void print_above(std::FILE* stream, std::string_view line);
  void erase_status();
  void draw_status();

  std::FILE* out_;
  std::FILE* err_;
  bool silent_ = false, status_on_ = false, colour_on_ = false, fixed_width_ = false;
  std::mutex mutex_;
  std::string status_;
};

// What the bar of a training run shows.
struct Progress {
  int64_t iteration = 0;
  std::optional<double> loss = {};
  std::optional<double> tokens_per_second = {};
};

// " 37% #####........... 370/1000 | loss 2.3451 | 12.3 k tokens/s | 3 min 05 s left". `seconds` is
// the time since iteration `first` was done: a resumed run does not start at 0.
std::string progress_line(const Progress& progress, int64_t first, int64_t last, double seconds);

// Draws progress_line as the status of a terminal, ten times a second at most.
class ProgressBar {
 public:
  ProgressBar(Terminal& terminal, int64_t first, int64_t last);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  void update(const Progress& progress);

 private:
  using Clock = std::chrono::steady_clock;

  Terminal& terminal_;
  int64_t first_, last_;
  Clock::time_point start_, next_draw_;
};

}  // namespace phx
