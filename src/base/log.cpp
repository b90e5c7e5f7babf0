#include "phalanx/base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <mutex>
#include <string_view>
#include <utility>

namespace phx {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::none:
      break;
  }
  return spdlog::level::off;
}

class TerminalSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  TerminalSink(std::shared_ptr<Terminal> terminal, std::string prefix)
      : terminal_(std::move(terminal)), prefix_(std::move(prefix)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::time_t time = spdlog::log_clock::to_time_t(message.time);
    std::tm parts{};
    ::localtime_r(&time, &parts);
    char clock[16];
    std::strftime(clock, sizeof clock, "%H:%M:%S", &parts);
    std::string line = terminal_->paint(Colour::grey, clock) + " " + prefix_;
    if (message.level == spdlog::level::warn)
      line += terminal_->paint(Colour::yellow, "warning:") + " ";
    if (message.level == spdlog::level::err) line += terminal_->paint(Colour::red, "error:") + " ";
    line.append(message.payload.data(), message.payload.size());
    terminal_->print_log(line);
  }
  void flush_() override {}  // print_log has flushed

  std::shared_ptr<Terminal> terminal_;
  std::string prefix_;
};

// The message is given as a view, which spdlog prints as it is: braces in it mean nothing.
void log(spdlog::level::level_enum level, const std::string& message) {
  spdlog::default_logger_raw()->log(level, spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace

void log_debug(const std::string& message) { log(spdlog::level::debug, message); }
void log_info(const std::string& message) { log(spdlog::level::info, message); }
void log_warning(const std::string& message) { log(spdlog::level::warn, message); }
void log_error(const std::string& message) { log(spdlog::level::err, message); }

void log_to(std::shared_ptr<Terminal> terminal, LogLevel level, const std::string& prefix) {
  auto sink = std::make_shared<TerminalSink>(std::move(terminal), prefix);
  auto logger = std::make_shared<spdlog::logger>("phalanx", std::move(sink));
  logger->set_level(level_of(level));
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace phx
