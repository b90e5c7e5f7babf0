// Which context-parallel ranks of a stage have to be planned.
#pragma once

#include <vector>

#include "phalanx/parallel/parallel_config.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

struct ContextKind {
  int rank = 0;   // of the context-parallel ranks: the first of its kind
  int count = 0;  // how many are alike
};

// Rings, gathers and exchanges of heads give all ranks the same. In layers with a window a rank
// brings the chunks in reach of its two chunks: fewer where the sequence begins, and fewer where
// its chunks are neighbours. Ranks of one kind bring and give equally many chunks.
std::vector<ContextKind> context_kinds(const TransformerConfig& model, const ParallelConfig& ranks);

}  // namespace phx
