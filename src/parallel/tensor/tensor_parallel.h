// The ranks that share every matrix, and the exchanges between them as differentiable functions.
//
// Without sequence parallelism every rank has all activations [s, b, h] between the sharded
// regions. With it a rank has the rows [s/tp, b, h] of its part of the sequence there, entering a
// region gathers them and leaving it scatters the sum.
#pragma once

#include "phalanx/comm/communicator.h"
#include "phalanx/core/tensor.h"

namespace phx {

struct TensorParallel {
  Communicator* group = nullptr;  // null: one rank
  bool sequence = false;          // --sequence-parallel
  bool overlap = false;           // --tp-comm-overlap

  int size() const { return group == nullptr ? 1 : group->size(); }
  int rank() const { return group == nullptr ? 0 : group->rank(); }
  bool cuts_sequence() const { return sequence && size() > 1; }
  // Exchanges go along with products, on a stream of their own. On cpu, where a rank's streams run
  // one after the other, there is nothing to win, and products cut into chunks might round
  // differently. A meta device does as the device that it stands for.
  bool overlaps(const Tensor& x) const {
    return overlap && size() > 1 && x.device().target() == DeviceKind::cuda;
  }
  // Of `total` things that are cut evenly.
  int64_t part(int64_t total) const { return total / size(); }
  int64_t first(int64_t total) const { return rank() * part(total); }
  // Rows of the sequence outside of sharded regions.
  int64_t sequence_rows(int64_t s) const { return cuts_sequence() ? part(s) : s; }
  int64_t first_sequence_row(int64_t s) const { return cuts_sequence() ? first(s) : 0; }
};

// Into a sharded region whose input gradients are sums over the ranks: [s/tp or s, b, h] ->
// [s, b, h]. The backward sums (and scatters).
Tensor enter_region(const Tensor& x, const TensorParallel& tp);
// Out of one, whose outputs are summands: [s, b, h] -> [s/tp or s, b, h].
Tensor leave_region(const Tensor& y, const TensorParallel& tp);

// The same on plain tensors, without graph.
Tensor gather_sequence(const Tensor& x, const TensorParallel& tp);  // [s/tp, ..] -> [s, ..]
Tensor sum_over_ranks(Tensor y, const TensorParallel& tp);          // [s, ..] -> [s/tp or s, ..]

}  // namespace phx
