#include "phalanx/base/terminal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "phalanx/base/log.h"

namespace phx {
namespace {

// A stream whose bytes a test can look at.
class Capture {
 public:
  Capture() : file_(std::tmpfile()) {}
  ~Capture() { std::fclose(file_); }
  std::FILE* file() { return file_; }
  std::string text() {
    std::string content;
    std::rewind(file_);
    for (int c; (c = std::fgetc(file_)) != EOF;) content += static_cast<char>(c);
    return content;
  }

 private:
  std::FILE* file_;
};

TEST(Terminal, AFileGetsOnlyTheLines) {
  Capture out, err;
  {
    Terminal terminal(out.file(), err.file());
    ProgressBar bar(terminal, 0, 10);
    bar.update({.iteration = 1});
    terminal.print("loss");
    terminal.print_log("note");
    EXPECT_EQ(terminal.paint(Colour::red, "x"), "x");
  }
  EXPECT_EQ(out.text(), "loss\n");
  EXPECT_EQ(err.text(), "note\n");
}

TEST(Terminal, LinesAppearAboveTheStatus) {
  Capture screen;
  {
    Terminal terminal(screen.file(), screen.file(), TerminalMode::terminal);
    terminal.set_status("50%");
    terminal.print("line");
    terminal.set_status("60%");
  }
  EXPECT_EQ(screen.text(), "\r\x1b[2K50%\r\x1b[2Kline\n50%\r\x1b[2K60%\r\x1b[2K");
}

TEST(Terminal, TheStatusIsCutToTheWidth) {
  Capture screen;
  Terminal terminal(screen.file(), screen.file(), TerminalMode::terminal);
  terminal.set_status(std::string(200, 'x'));
  EXPECT_EQ(screen.text(), "\r\x1b[2K" + std::string(79, 'x'));
}

TEST(ProgressLine, ShowsIterationLossSpeedAndTimeLeft) {
  const std::string line =
      progress_line({.iteration = 250, .loss = 2.34512, .tokens_per_second = 12345.}, 0, 1000, 60.);
  EXPECT_EQ(line,
            " 25% ####............ 250/1000 | loss 2.3451 | 12.3 k tokens/s"
            " | 3 min 00 s left");
}

TEST(ProgressLine, AResumedRunCountsOnlyItsOwnTime) {
  // 50 iterations in 10 s, 50 to go.
  EXPECT_EQ(progress_line({.iteration = 950}, 900, 1000, 10.),
            " 95% ###############. 950/1000 | 10.0 s left");
}

TEST(ProgressLine, AHundredPercentIsTheEnd) {
  EXPECT_EQ(progress_line({.iteration = 999}, 0, 1000, 999.).substr(0, 4), " 99%");
  EXPECT_EQ(progress_line({.iteration = 1000}, 0, 1000, 1000.), "100% ################ 1000/1000");
}

TEST(ProgressBar, DrawsAtMostTenTimesASecond) {
  Capture screen;
  {
    Terminal terminal(screen.file(), screen.file(), TerminalMode::terminal);
    ProgressBar bar(terminal, 0, 1000000);
    for (int i = 1; i <= 1000; ++i) bar.update({.iteration = i});
  }
  const std::string text = screen.text();
  EXPECT_NE(text.find(" 1/1000000"), std::string::npos);
  // 1000 updates take microseconds; 50 drawings would be 5 seconds of them.
  EXPECT_LT(std::count(text.begin(), text.end(), '%'), 50);
}

TEST(Log, LinesCarryLevelAndPrefixAndLeaveBracesAlone) {
  Capture out, err;
  log_to(std::make_shared<Terminal>(out.file(), err.file()), LogLevel::info, "rank 3: ");
  log_debug("hidden");
  log_info("saved {}");
  log_warning("slow");
  log_error("lost");
  const std::string text = err.text();
  log_to(std::make_shared<Terminal>(), LogLevel::info);  // the captures end here
  std::string without_clock;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    EXPECT_EQ(text[at + 2], ':');
    without_clock += text.substr(at + 9, text.find('\n', at) - at - 8);
  }
  EXPECT_EQ(without_clock, "rank 3: saved {}\nrank 3: warning: slow\nrank 3: error: lost\n");
  EXPECT_EQ(out.text(), "");
}

TEST(Log, WarningsAreColouredOnATerminal) {
  Capture screen;
  log_to(std::make_shared<Terminal>(screen.file(), screen.file(), TerminalMode::terminal),
         LogLevel::info);
  log_warning("slow");
  const std::string text = screen.text();
  log_to(std::make_shared<Terminal>(), LogLevel::info);
  EXPECT_NE(text.find("\x1b[33mwarning:\x1b[0m slow\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace phx
