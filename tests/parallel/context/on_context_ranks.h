// Context-parallel ranks as threads, each with its rows of whole tensors, for tests.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "phalanx/comm/thread_world.h"
#include "phalanx/core/runtime.h"
#include "phalanx/parallel/context/context_parallel.h"

namespace phx::testing {

// f(ranks, device) on `size` threads, each with a runtime of its own; `inner` neighbours exchange
// heads where a2a+p2p says so.
inline void on_context_ranks(int size, int inner, std::vector<ContextComm> comm,
                             const std::function<void(const ContextParallel&, Device)>& f) {
  run_thread_ranks(size, {}, [&](World& world) {
    Runtime runtime;
    std::vector<int> all, neighbours, others;
    for (int i = 0; i < size; ++i) {
      all.push_back(i);
      if (i / inner == world.rank() / inner) neighbours.push_back(i);
      if (i % inner == world.rank() % inner) others.push_back(i);
    }
    const auto group = world.group(all, "cp");
    std::unique_ptr<Communicator> near, ring;
    if (inner > 1 && inner < size) {
      near = world.group(neighbours, "cp neighbours");
      ring = world.group(others, "cp ring");
    }
    ContextParallel ranks{
        .group = group.get(), .inner = near.get(), .outer = ring.get(), .comm = comm};
    if (inner == size) ranks.inner = group.get();
    f(ranks, runtime.device());
  });
}

// Whole rows [s, ..] -> those of a rank.
inline Tensor rows_of_rank(const Tensor& whole, const SequenceCut& cut, Device device) {
  const std::vector<double> values = to_values(whole);
  const int64_t s = whole.dim(0), width = whole.numel() / s;
  std::vector<double> kept;
  for (const RowSpan& span : cut.spans(s)) {
    const auto first = values.begin() + span.global * width;
    kept.insert(kept.end(), first, first + span.count * width);
  }
  return from_values(kept, {cut.rows(s), whole.dim(1), whole.dim(2)}, whole.dtype(), device);
}

}  // namespace phx::testing
