// Keys and values go round: in every step a rank computes with the part it has and passes it on to
// the next rank, on a stream of its own, while it computes. Results are merged by their
// log-sum-exp. In the backward the gradients of the keys travel with them, one step behind.
//
// Sums have one order: a part's own rank first, then the ranks behind it.
#pragma once

#include "phalanx/comm/communicator.h"
#include "phalanx/parallel/context/attention_parts.h"

namespace phx {

Tensor ring_attention(const ContextProblem& problem, Communicator& ranks,
                      KeptAttention* kept = nullptr);  // -> [s/cp, b, n * dv]

}  // namespace phx
