// Tensor-parallel ranks as threads, for tests.
#pragma once

#include <functional>
#include <vector>

#include "phalanx/comm/thread_world.h"
#include "phalanx/core/runtime.h"
#include "phalanx/parallel/tensor/tensor_parallel.h"

namespace phx::testing {

inline constexpr double kClose = 1e-13;  // sums of a few dozen terms in another order

// f(tp, device) on `ranks` threads, each with a runtime of its own.
inline void on_ranks(int ranks, bool sequence,
                     const std::function<void(const TensorParallel&, Device)>& f) {
  run_thread_ranks(ranks, {}, [&](World& world) {
    Runtime runtime;
    std::vector<int> all;
    for (int i = 0; i < ranks; ++i) all.push_back(i);
    const auto group = world.group(all, "tp");
    f({.group = group.get(), .sequence = sequence}, runtime.device());
  });
}

inline Tensor columns(const Tensor& x, int64_t first, int64_t width) {
  Tensor part = empty(x.shape().with_last(width), x.dtype(), x.device());
  copy_columns(x, first, part);
  return part;
}

}  // namespace phx::testing
