#include "phalanx/core/thread_pool.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace phx {
namespace {

TEST(ThreadPool, TouchesEveryElementOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t n : {0, 1, 7, 1000}) {
      std::vector<int> touched(n, 0);
      pool.parallel_for(n, 3, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++touched[i];
      });
      for (int count : touched) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, ThrowsWhatAWorkerThrew) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.parallel_for(3, 1,
                                 [](int64_t begin, int64_t) {
                                   if (begin == 2) throw std::runtime_error("from a worker");
                                 }),
               std::runtime_error);
  int calls = 0;
  pool.parallel_for(1, 1, [&](int64_t, int64_t) { ++calls; });
  EXPECT_EQ(calls, 1) << "the pool still works";
}

}  // namespace
}  // namespace phx
