// What keeps a model from being cut over the ranks of context parallelism.
#pragma once

#include <functional>

#include "phalanx/base/option_rules.h"
#include "phalanx/parallel/parallel_config.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

// Was a value of the flag understood? ("num-layers")
using KnownFlag = std::function<bool(const char* name)>;

// Context-parallel ranks that exchange heads with each other in some layer; 1: none do.
int64_t ranks_that_exchange_heads(const ParallelConfig& ranks);

// Of those, the neighbours of layers with a2a+p2p: the first of the sizes; 1: no layer has it.
int64_t neighbours_that_exchange_heads(const ParallelConfig& ranks);

// Each problem with the nearest values that work.
Problems context_layout_problems(const TransformerConfig& model, const ParallelConfig& ranks,
                                 const KnownFlag& known = {});

// Of a model, or a part of its layers, that is not right with some rows of every sequence.
Problem needs_whole_sequences(const ParallelConfig& ranks);

// What GPUs do not know yet: their kernels find places in the whole sequence only where a rank has
// all positions of some heads. `packed`: samples hold several sequences.
Problems context_device_problems(const TransformerConfig& model, const ParallelConfig& ranks,
                                 bool packed);

}  // namespace phx
