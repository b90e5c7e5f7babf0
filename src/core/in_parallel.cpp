#include "phalanx/core/in_parallel.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace phx {

std::optional<size_t> SharedWork::next() {
  if (failed_) return std::nullopt;
  const size_t number = next_++;
  return number < count_ ? std::optional(number) : std::nullopt;
}

void SharedWork::fail(size_t number, std::exception_ptr error) {
  failed_ = true;
  const std::lock_guard lock(mutex_);
  if (error_ && failed_number_ <= number) return;
  failed_number_ = number;
  error_ = std::move(error);
}

void SharedWork::rethrow() const {
  if (error_) std::rethrow_exception(error_);
}

void share_work(size_t count, int threads, const std::function<void(Turns&)>& work) {
  SharedWork shared(count);
  const auto run = [&] {
    Turns turns(shared);
    try {
      work(turns);
    } catch (...) {
      shared.fail(turns.current(), std::current_exception());
    }
  };
  {
    std::vector<std::jthread> others;
    const size_t wanted = std::min(count, size_t(std::max(threads, 1)));
    try {
      for (size_t i = 1; i < wanted; ++i) others.emplace_back(run);
    } catch (const std::system_error&) {
      // The system has no more threads.
    }
    run();
  }
  shared.rethrow();
}

}  // namespace phx
