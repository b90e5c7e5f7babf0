// Attention of a rank's queries over the keys of all ranks that share the sequence. What is
// computed is kernels/attention.h's; ContextParallel says which way the keys take.
#pragma once

#include "phalanx/ops/attention.h"
#include "phalanx/parallel/context/context_parallel.h"

namespace phx {

// As ops/attention.h: the last dimension is all query heads | all key heads | all value heads, and
// rows are the rank's two chunks. `packed` describes the whole row of all ranks.
Tensor context_attention(
    const Tensor& qkv, const QkvHeads& heads, const AttentionOptions& options,
    const PackedSequences& packed, const ContextParallel& ranks, int64_t layer,
    KeptAttention* kept = nullptr);  // [s/cp, b, (n + 2g) * d] -> [s/cp, b, n * d]

// Keys and values in one tensor, all keys, then all values.
// q [s/cp, b, n * d], kv [s/cp, b, g * (d + dv)] -> [s/cp, b, n * dv]
Tensor context_attention(const Tensor& q, const Tensor& kv, const QkvHeads& heads,
                         const AttentionOptions& options, const PackedSequences& packed,
                         const ContextParallel& ranks, int64_t layer,
                         KeptAttention* kept = nullptr);

}  // namespace phx
