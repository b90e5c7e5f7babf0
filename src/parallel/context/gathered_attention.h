// Attention over keys that a rank brings together before it computes: all of them by one gather, or
// the chunks that its queries see, straight from whoever has them. The backward brings them
// together again, and gives gradients back the same way.
#pragma once

#include "phalanx/comm/communicator.h"
#include "phalanx/parallel/context/attention_parts.h"

namespace phx {

enum class Bring : uint8_t { all, seen };

Tensor gathered_attention(const ContextProblem& problem, Bring what, Communicator& ranks,
                          KeptAttention* kept = nullptr);  // -> [s/cp, b, n * dv]

// The chunks that queries of a rank see, ascending.
std::vector<int64_t> seen_chunks(const ContextProblem& problem, int64_t rank);

}  // namespace phx
