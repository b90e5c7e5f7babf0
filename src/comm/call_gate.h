// Stands before an object that several threads call into and one of them may have to end, like a
// communicator of NCCL whose peer died. A caller passes the gate before it touches the object and
// comes back out behind its call; whoever ends the object closes the gate first. From then on
// nobody is let in, so nobody can be about to use what is being ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace phx {

class CallGate {
 public:
  // False: it is closed, and the object is not to be touched. After true comes leave().
  bool enter() {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    ++inside_;
    return true;
  }
  void leave() {
    {
      const std::lock_guard lock(mutex_);
      --inside_;
    }
    left_.notify_all();
  }

  // Lets nobody in any more.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  // Whether all who were inside have left, by the deadline at the latest.
  bool wait_until_empty(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return left_.wait_until(lock, deadline, [&] { return inside_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  int inside_ = 0;
  bool closed_ = false;
};

}  // namespace phx
