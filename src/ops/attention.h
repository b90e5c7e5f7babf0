// Attention over heads that lie side by side in the last dimension. kernels/attention.h says what
// is computed and what the options mean. Kept for the backward: the inputs, the output and the
// log-sum-exp; nothing of size s x s.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/attention.h"

namespace phx {

using kernels::AttentionOptions;
using kernels::AttentionRandom;

struct QkvHeads {
  int64_t n = 0;   // query heads
  int64_t g = 0;   // key and value heads; n is a multiple
  int64_t d = 0;   // channels a head of queries and keys
  int64_t dv = 0;  // of values, where they are fewer; 0: as many
  int64_t value_channels() const { return dv > 0 ? dv : d; }
};

// Several sequences laid end to end in one row of t tokens; none sees another.
struct PackedSequences {
  Tensor cu_seqlens;       // i32 [sequences + 1] on the device, from 0 to t
  int64_t max_seqlen = 0;  // the longest, known to the host
};

// Results of attention that are kept while all around them is computed again in the backward: made
// and kept where no graph is recorded, and taken, in the same order, where one is.
class KeptAttention {
 public:
  struct Result {
    Tensor o;                 // [s, b, n * dv]
    std::vector<Tensor> lse;  // [b, n, rows] of each piece
  };
  // Either way `attend` is what computes it.
  static Result get(KeptAttention* kept, Runtime& runtime, const std::function<Result()>& attend);

 private:
  std::deque<Result> results_;
};

// The last dimension is all query heads | all key heads | all value heads. The backward writes one
// gradient of this same layout, without copies.
Tensor attention(const Tensor& qkv, const QkvHeads& heads, const AttentionOptions& options = {},
                 const PackedSequences& packed = {},
                 KeptAttention* kept = nullptr);  // [s, b, (n + 2g) * d] -> [s, b, n * d]

// From separate tensors; sk may exceed sq: the queries are then the last positions (KV cache).
// q [sq, b, n * d], k [sk, b, g * d], v [sk, b, g * dv] -> [sq, b, n * dv]
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const QkvHeads& heads,
                 const AttentionOptions& options = {}, const PackedSequences& packed = {});

// Keys and values in one tensor, all keys, then all values, whose gradient is one tensor, too.
// q [sq, b, n * d], kv [sk, b, g * (d + dv)] -> [sq, b, n * dv]
Tensor attention(const Tensor& q, const Tensor& kv, const QkvHeads& heads,
                 const AttentionOptions& options = {}, const PackedSequences& packed = {},
                 KeptAttention* kept = nullptr);

}  // namespace phx
