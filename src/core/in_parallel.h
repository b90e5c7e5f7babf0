// Independent pieces of work of uneven length on threads that live as long as the call: reading
// files, tokenizing lines. (Kernels have ThreadPool, which cuts evenly and starts no threads.)
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>

namespace phx {

// What the threads of one call share. Numbers are handed out in order, so when piece i fails all
// pieces before it are done or under way, and the error of the lowest number is the same each time.
class SharedWork {
 public:
  explicit SharedWork(size_t count) : count_(count) {}

  std::optional<size_t> next();  // nothing when all are taken, or when one has failed
  void fail(size_t number, std::exception_ptr error);
  void rethrow() const;  // the error of the lowest number, if there is one

 private:
  const size_t count_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  size_t failed_number_ = 0;
  std::exception_ptr error_;
};

// One thread's access to it.
class Turns {
 public:
  explicit Turns(SharedWork& work) : work_(work) {}
  std::optional<size_t> next() {
    const std::optional<size_t> number = work_.next();
    current_ = number.value_or(size_t(-1));
    return number;
  }
  size_t current() const { return current_; }

 private:
  SharedWork& work_;
  size_t current_ = size_t(-1);  // none: behind all of them
};

// work(turns) on up to `threads` threads at once, the caller's among them; each takes numbers
// 0 .. count - 1 from its turns until there are no more, and may keep buffers from one to the next.
// When one throws the others get no more numbers, and the error of the lowest number is thrown
// here. Threads that the system does not give are done without: those that are there do the work.
void share_work(size_t count, int threads, const std::function<void(Turns&)>& work);

// f(i) for i = 0 .. count - 1, likewise.
template <class F>
void in_parallel(size_t count, int threads, F&& f) {
  share_work(count, threads, [&](Turns& turns) {
    while (const auto i = turns.next()) f(*i);
  });
}

}  // namespace phx
