#include "phalanx/core/thread_pool.h"

#include <algorithm>
#include <utility>

#include "phalanx/base/math.h"

namespace phx {

namespace {

// A kernel follows the last one within microseconds, so a short spin saves most sleeps and
// wake-ups; it is bounded, so that many ranks on few cores do not burn them.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::piece(int index) {
  if (index >= pieces_) return;
  try {
    body_(context_, n_ * index / pieces_, n_ * (index + 1) / pieces_);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void ThreadPool::run(int64_t n, int64_t grain, Body body, void* context) {
  if (n <= 0) return;
  const int pieces = int(std::min<int64_t>(size(), ceil_div(n, std::max<int64_t>(grain, 1))));
  if (pieces <= 1) {
    body(context, 0, n);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    body_ = body;
    context_ = context;
    n_ = n;
    pieces_ = pieces;
    remaining_.store(int(workers_.size()));
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  piece(0);
  for (int spin = 0; spin < kSpins && remaining_.load() > 0; ++spin) pause();
  if (remaining_.load() > 0) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return remaining_.load() == 0; });
  }
  std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work(int index) {
  uint64_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && generation_.load() == seen; ++spin) pause();
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load() != seen; });
      seen = generation_.load();
      if (stop_) return;
    }
    piece(index);
    if (remaining_.fetch_sub(1) == 1) {
      std::lock_guard lock(mutex_);
      done_.notify_one();
    }
  }
}

}  // namespace phx
