#include "phalanx/comm/wait_report.h"

#include <cmath>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"

namespace phx {

WaitReport::WaitReport(std::chrono::milliseconds every, std::chrono::milliseconds timeout)
    : every_(every),
      timeout_(timeout),
      begin_(std::chrono::steady_clock::now()),
      next_(deadline_in(every)) {}

void WaitReport::say(const std::string& what) {
  if (every_.count() == 0 || milliseconds_until(next_) > 0) return;
  const auto seconds = [](auto time) { return std::chrono::duration<double>(time).count(); };
  log_info(str_cat(what, "; ", std::round(seconds(std::chrono::steady_clock::now() - begin_)),
                   " s of ", seconds(timeout_), " s"));
  next_ = deadline_in(++lines_ > 10 ? 3 * every_ : every_);
}

}  // namespace phx
