// The worker threads of one rank's CPU kernels. Work is cut into equal contiguous pieces, one a
// thread, so what a piece computes never depends on timing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace phx {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // the calling thread counts as one of them
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return int(workers_.size()) + 1; }

  // f(begin, end) over pieces of [0, n), none shorter than `grain` unless n is. Called from one
  // thread, never from inside f.
  template <class F>
  void parallel_for(int64_t n, int64_t grain, F&& f) {
    run(
        n, grain,
        [](void* body, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(body))(begin, end);
        },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  using Body = void (*)(void*, int64_t, int64_t);
  void run(int64_t n, int64_t grain, Body body, void* context);
  void work(int index);
  void piece(int index);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> remaining_{0};
  bool stop_ = false;
  Body body_ = nullptr;
  void* context_ = nullptr;
  int64_t n_ = 0;
  int pieces_ = 0;
  std::exception_ptr failure_;
};

}  // namespace phx
