// What the ways of context_attention.h share: where a rank's queries, keys and values are, which
// chunks see which, and the attention of one chunk of queries.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "phalanx/core/autograd.h"
#include "phalanx/ops/attention.h"
#include "phalanx/parallel/context/sequence_cut.h"

namespace phx {

// Heads inside of {qkv} or of {q, kv}.
struct HeadTensors {
  std::vector<Tensor> tensors;
  QkvHeads heads;

  int64_t s() const { return tensors[0].dim(0); }
  int64_t b() const { return tensors[0].dim(1); }
  int64_t key_channels() const { return heads.g * (heads.d + heads.value_channels()); }
  HeadView q() const { return heads_from(tensors[0], 0, heads.d, heads.n); }
  // Keys and values as one tensor of their own, all keys, then all values: [s, b, g * (d + dv)].
  Tensor keys_and_values() const;
};

struct KeyViews {
  HeadView k, v;
};
KeyViews key_views(const Tensor& kv, const QkvHeads& heads);  // [s, b, g * (d + dv)]

// The problem on all ranks.
struct ContextProblem {
  HeadTensors in;
  AttentionOptions options;
  PackedSequences packed;
  SequenceCut cut;
  int64_t chunk = 0;  // its rows

  DType acc() const { return acc_dtype(in.tensors[0].dtype()); }
  // Whether a query of one chunk may see a key of another.
  bool sees(int64_t query_chunk, int64_t key_chunk) const;
  // The chunks that queries of a chunk see: from the first to the last.
  std::array<int64_t, 2> seen(int64_t query_chunk) const;
};
ContextProblem context_problem(const HeadTensors& in, const AttentionOptions& options,
                               const PackedSequences& packed, const SequenceCut& cut);

// Queries of this rank's chunk `nth` (0 or 1) against keys [first_key, ..) of the sequence.
kernels::AttentionInputs chunk_inputs(const ContextProblem& problem, size_t nth,
                                      const KeyViews& keys, int64_t first_key);

// The attention of one chunk of queries (0 or 1), put together from some of its keys after others.
class MergedAttention {
 public:
  MergedAttention(const ContextProblem& problem, size_t nth) : problem_(problem), nth_(nth) {}
  // Keys [first_key, ..) of the sequence, of which the chunk sees some.
  void add(const KeyViews& keys, int64_t first_key);
  // Writes o [c, b, n * dv]; returns the log-sum-exp [b, n, c].
  Tensor finish(const Tensor& o);

 private:
  const ContextProblem& problem_;
  size_t nth_;
  Tensor first_;  // [c, b, n * dv] of the first keys, rounded; dropped when others come
  Tensor sum_;    // of all so far, in acc_dtype
  Tensor lse_;
};

// What the backward reads of the forward.
struct ContextResult {
  Tensor o;                   // [2 c, b, n * dv]
  std::array<Tensor, 2> lse;  // [b, n, c] of each chunk
};
// What `forward` computes, unless it was kept (ops/attention.h).
ContextResult kept_or(const ContextProblem& problem, KeptAttention* kept,
                      const std::function<ContextResult()>& forward);
// result.o, differentiable. `backward` writes the gradients of problem.in.tensors.
using ContextBackward = std::function<void(
    const ContextProblem& problem, const ContextResult& result, const Tensor& d_o, GradOut& grad)>;
Tensor with_context_backward(const ContextProblem& problem, const ContextResult& result,
                             const ContextBackward& backward);

// Gradients of a rank's queries and of its own keys and values, in any type each, into those of
// {qkv} or {q, kv}.
void store_gradients(const ContextProblem& problem, const Tensor& dq, const Tensor& dkv,
                     GradOut& grad);

// sum (acc_dtype) = part, or sum + part.
void add_part(const Tensor& part, const Tensor& sum, bool first);

}  // namespace phx
