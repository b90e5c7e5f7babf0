// Log lines: "12:00:00 warning: ...". They go through spdlog's default logger, which is the only
// global here: libraries call log_info and friends, the program decides once where lines go.
#pragma once

#include <memory>
#include <string>

#include "phalanx/base/terminal.h"

namespace phx {

enum class LogLevel { debug, info, warning, error, none };

void log_debug(const std::string& message);
void log_info(const std::string& message);
void log_warning(const std::string& message);
void log_error(const std::string& message);

// From now on log lines of `level` and above are printed by `terminal`, above its progress bar.
// `prefix` stands before each message: a rank says "rank 3: ".
void log_to(std::shared_ptr<Terminal> terminal, LogLevel level, const std::string& prefix = "");

}  // namespace phx
