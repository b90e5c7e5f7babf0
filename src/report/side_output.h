// A file that a run writes for people: metrics, TensorBoard events. It is not worth a run: when the
// disk is full or the folder is gone that is told once, the run goes on, and the file is tried
// again later. What was to be written meanwhile is lost.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"

namespace phx {

// File: has write(report) and in_place(), both may throw.
template <class File>
class SideOutput {
 public:
  using Clock = std::chrono::steady_clock;
  using Open = std::function<std::unique_ptr<File>()>;

  // `name`: "--metrics-file run/metrics.jsonl". `open` makes the file at the start of the run,
  // `open_again` one to go on with after trouble.
  SideOutput(std::string name, const Open& open, Open open_again,
             Clock::duration patience = std::chrono::seconds(30))
      : name_(std::move(name)), open_again_(std::move(open_again)), patience_(patience) {
    attempt([&] { file_ = open(); });
  }

  template <class Report>
  void write(const Report& report) {
    if (!file_ && Clock::now() < next_) return;
    attempt([&] {
      if (file_ && !file_->in_place()) {
        file_.reset();
        log_warning(str_cat(name_, " is gone: it is made anew, and what it held is lost"));
      }
      if (!file_) file_ = open_again_();
      file_->write(report);
      if (failing_) log_info(str_cat(name_, " can be written again"));
      failing_ = false;
    });
  }

  bool failing() const { return failing_; }

 private:
  void attempt(const std::function<void()>& f) {
    try {
      f();
    } catch (const std::exception& error) {
      file_.reset();
      next_ = Clock::now() + patience_;
      if (!std::exchange(failing_, true))
        log_warning(str_cat(name_, ": ", error.what(),
                            "\n  the run goes on without it, and tries again from time to time"));
    }
  }

  std::string name_;
  Open open_again_;
  Clock::duration patience_;
  std::unique_ptr<File> file_;
  Clock::time_point next_{};
  bool failing_ = false;
};

}  // namespace phx
