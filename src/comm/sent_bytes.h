// What a rank sends if the algorithm is one that sends the least: of n bytes among P ranks, (P-1)/P
// n for all_gather, reduce_scatter and all_to_all, twice that for all_reduce, n for broadcast (each
// passes it on) and send, none for receive. All-to-all counts its own rows.
#pragma once

#include <span>

#include "phalanx/core/tensor.h"

namespace phx {

// Of all_gather and reduce_scatter; `whole` is what all ranks have together.
inline int64_t sent_of_whole(const Tensor& whole, int ranks) {
  return whole.bytes() / ranks * (ranks - 1);
}

inline int64_t sent_to_reduce(const Tensor& x, int ranks) { return 2 * sent_of_whole(x, ranks); }

inline int64_t sent_to_all(const Tensor& in, std::span<const int64_t> send_rows, int rank) {
  const int64_t row_bytes = in.dim(0) == 0 ? 0 : in.bytes() / in.dim(0);
  return (in.dim(0) - send_rows[size_t(rank)]) * row_bytes;
}

}  // namespace phx
