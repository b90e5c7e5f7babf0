// How the reductions of TransportCommunicator are cut, and the memory that they need for it. The
// sizes depend on shapes alone, so that a meta rank that impersonates cpu allocates the same.
#pragma once

#include <algorithm>
#include <cstdint>

#include "phalanx/base/math.h"
#include "phalanx/core/dtype.h"

namespace phx {

// Up to this many bytes from all ranks together, everybody sends everything to everybody and adds
// alone: one exchange instead of two.
inline constexpr int64_t kDirectReduceBytes = 64 << 10;
// Beyond, contributions arrive in blocks that fill at most this much.
inline constexpr int64_t kReduceScratchBytes = 4 << 20;

struct ReducePlan {
  bool direct;    // everybody reduces all elements
  int64_t piece;  // elements that a rank reduces
  int64_t block;  // of them at a time
  int64_t scratch_bytes(int ranks, DType dtype) const { return ranks * block * size_of(dtype); }
};

// `piece` elements are reduced by each rank.
inline ReducePlan plan_reduce_scatter(int64_t piece, int ranks, DType dtype) {
  const int64_t most = std::max<int64_t>(kReduceScratchBytes / (ranks * size_of(dtype)), 64);
  return {.direct = false, .piece = piece, .block = std::min(piece, most)};
}

inline ReducePlan plan_all_reduce(int64_t numel, int ranks, DType dtype) {
  if (numel * size_of(dtype) * ranks <= kDirectReduceBytes)
    return {.direct = true, .piece = numel, .block = numel};
  return plan_reduce_scatter(ceil_div(numel, int64_t{ranks}), ranks, dtype);
}

}  // namespace phx
