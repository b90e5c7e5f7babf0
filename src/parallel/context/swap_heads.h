// Heads for positions (Ulysses): from some positions of all heads to all positions of some heads,
// and back, as differentiable functions. One all-to-all each way.
//
// The ranks of the group hold neighbouring pieces of a larger cut: of rank i of size() the chunks i
// and 2 size() - 1 - i of what the group has together (parallel/context/sequence_cut.h). Behind the
// exchange rows are in the order of the sequence.
#pragma once

#include <vector>

#include "phalanx/comm/communicator.h"
#include "phalanx/core/tensor.h"

namespace phx {

// Heads side by side in the last dimension: `count` of `width` channels. A tensor has several such
// runs, one behind the other: query heads, key heads, value heads. Ranks divide each run.
struct HeadRun {
  int64_t count = 0, width = 0;
  int64_t channels() const { return count * width; }
};

// x [s, b, w], w the channels of all runs -> [size() * s, b, w / size()]
Tensor heads_for_positions(const Tensor& x, const std::vector<HeadRun>& runs, Communicator& ranks);
// y [size() * s, b, w / size()], runs as above, of all ranks -> [s, b, w]
Tensor positions_for_heads(const Tensor& y, const std::vector<HeadRun>& runs, Communicator& ranks);

}  // namespace phx
