#include "phalanx/base/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "phalanx/base/format.h"

namespace phx {
namespace {

constexpr int kDefaultWidth = 80;
constexpr int kBarCells = 16;  // all of a line fits in 80 columns
constexpr std::chrono::milliseconds kDrawEvery{100};
constexpr const char* kEraseLine = "\r\x1b[2K";

bool is_terminal(std::FILE* stream) {
  const char* kind = std::getenv("TERM");
  return ::isatty(::fileno(stream)) && kind != nullptr && std::string_view(kind) != "dumb";
}

const char* code_of(Colour colour) {
  switch (colour) {
    case Colour::red:
      return "\x1b[31m";
    case Colour::green:
      return "\x1b[32m";
    case Colour::yellow:
      return "\x1b[33m";
    case Colour::blue:
      return "\x1b[34m";
    case Colour::grey:
      return "\x1b[90m";
    case Colour::plain:
      break;
  }
  return "";
}

}  // namespace

Terminal::Terminal(std::FILE* out, std::FILE* err, TerminalMode mode) : out_(out), err_(err) {
  const bool automatic = mode == TerminalMode::automatic;
  status_on_ = automatic ? is_terminal(err) : mode == TerminalMode::terminal;
  colour_on_ = status_on_ && !(automatic && std::getenv("NO_COLOR") != nullptr);
  fixed_width_ = !automatic;
  silent_ = mode == TerminalMode::silent;
}

Terminal::~Terminal() { clear_status(); }

void Terminal::print(std::string_view line) { print_above(out_, line); }

void Terminal::print_log(std::string_view line) { print_above(err_, line); }

void Terminal::print_above(std::FILE* stream, std::string_view line) {
  if (silent_) return;
  const std::lock_guard lock(mutex_);
  erase_status();  // before the line: out and err are mostly the same screen
  std::fwrite(line.data(), 1, line.size(), stream);
  std::fputc('\n', stream);
  std::fflush(stream);
  draw_status();
}

void Terminal::set_status(std::string_view line) {
  if (!status_on_) return;
  const std::lock_guard lock(mutex_);
  status_ = line.substr(0, static_cast<size_t>(std::max(0, width() - 1)));
  std::fputs(kEraseLine, err_);
  draw_status();
}

void Terminal::clear_status() {
  const std::lock_guard lock(mutex_);
  erase_status();
  status_.clear();
}

int Terminal::width() const {
  winsize size{};
  if (fixed_width_ || ::ioctl(::fileno(err_), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return kDefaultWidth;
  }
  return size.ws_col;
}

std::string Terminal::paint(Colour colour, std::string_view text) const {
  if (!colour_on_ || colour == Colour::plain) return std::string(text);
  return fmt::format("{}{}\x1b[0m", code_of(colour), text);
}

void Terminal::erase_status() {
  if (status_.empty()) return;
  std::fputs(kEraseLine, err_);
  std::fflush(err_);
}

void Terminal::draw_status() {
  if (status_.empty()) return;
  std::fwrite(status_.data(), 1, status_.size(), err_);
  std::fflush(err_);
}

std::string progress_line(const Progress& progress, int64_t first, int64_t last, double seconds) {
  const int64_t done = progress.iteration - first;
  const double share =
      last > 0 ? std::clamp(static_cast<double>(progress.iteration) / last, 0., 1.) : 1.;
  const int cells = static_cast<int>(share * kBarCells);
  // Rounded down, so that 100% is the end.
  std::string line =
      fmt::format("{:3d}% {}{} {}/{}", static_cast<int>(share * 100.), std::string(cells, '#'),
                  std::string(kBarCells - cells, '.'), progress.iteration, last);
  if (progress.loss) line += fmt::format(" | loss {:.4f}", *progress.loss);
  if (progress.tokens_per_second) {
    line += fmt::format(" | {} tokens/s", format_count(*progress.tokens_per_second));
  }
  if (done > 0 && progress.iteration < last) {
    const double left = seconds / done * (last - progress.iteration);
    line += fmt::format(" | {} left", format_duration(left));
  }
  return line;
}

ProgressBar::ProgressBar(Terminal& terminal, int64_t first, int64_t last)
    : terminal_(terminal), first_(first), last_(last), start_(Clock::now()), next_draw_(start_) {}

ProgressBar::~ProgressBar() { terminal_.clear_status(); }

void ProgressBar::update(const Progress& progress) {
  if (!terminal_.shows_status()) return;
  const Clock::time_point now = Clock::now();
  if (now < next_draw_ && progress.iteration < last_) return;
  next_draw_ = now + kDrawEvery;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  terminal_.set_status(progress_line(progress, first_, last_, seconds));
}

}  // namespace phx
