#include "phalanx/parallel/context/context_attention.h"

#include "phalanx/parallel/context/gathered_attention.h"
#include "phalanx/parallel/context/ring_attention.h"
#include "phalanx/parallel/context/swap_heads.h"

namespace phx {

namespace {

// The tensors of HeadTensors as runs of heads.
std::vector<HeadRun> runs_of(const QkvHeads& heads, size_t nth, size_t tensors) {
  const HeadRun q{heads.n, heads.d}, k{heads.g, heads.d}, v{heads.g, heads.value_channels()};
  if (tensors == 1) return {q, k, v};
  if (nth == 0) return {q};
  return {k, v};
}

Tensor on_one_rank(const HeadTensors& in, const AttentionOptions& options,
                   const PackedSequences& packed, KeptAttention* kept) {
  if (in.tensors.size() == 1) return attention(in.tensors[0], in.heads, options, packed, kept);
  return attention(in.tensors[0], in.tensors[1], in.heads, options, packed, kept);
}

Tensor over_keys(const HeadTensors& in, const AttentionOptions& options,
                 const PackedSequences& packed, ContextComm comm, Communicator& ranks,
                 KeptAttention* kept) {
  const ContextProblem problem =
      context_problem(in, options, packed, {.ranks = ranks.size(), .rank = ranks.rank()});
  if (comm == ContextComm::all_gather) return gathered_attention(problem, Bring::all, ranks, kept);
  // A ring would carry every key to every rank.
  if (options.window_left >= 0) return gathered_attention(problem, Bring::seen, ranks, kept);
  return ring_attention(problem, ranks, kept);
}

// Some heads of all positions of `swapped`; then over the keys of the others, if there are any.
Tensor over_heads(const HeadTensors& in, const AttentionOptions& options,
                  const PackedSequences& packed, Communicator& swapped, Communicator* others,
                  KeptAttention* kept) {
  const QkvHeads& all = in.heads;
  const int64_t ranks = swapped.size();
  HeadTensors part{.tensors = {},
                   .heads = {.n = all.n / ranks, .g = all.g / ranks, .d = all.d, .dv = all.dv}};
  for (size_t i = 0; i < in.tensors.size(); ++i)
    part.tensors.push_back(
        heads_for_positions(in.tensors[i], runs_of(all, i, in.tensors.size()), swapped));
  AttentionOptions of_part = options;
  of_part.random.first_head += swapped.rank() * part.heads.n;
  const Tensor o = others == nullptr
                       ? on_one_rank(part, of_part, packed, kept)
                       : over_keys(part, of_part, packed, ContextComm::p2p, *others, kept);
  return positions_for_heads(o, {{all.n, all.value_channels()}}, swapped);
}

Tensor attend(const HeadTensors& in, const AttentionOptions& options, const PackedSequences& packed,
              const ContextParallel& ranks, int64_t layer, KeptAttention* kept) {
  if (ranks.size() == 1) return on_one_rank(in, options, packed, kept);
  const ContextComm comm = ranks.comm_of(layer);
  if (comm == ContextComm::a2a) return over_heads(in, options, packed, *ranks.group, nullptr, kept);
  if (comm != ContextComm::a2a_p2p) return over_keys(in, options, packed, comm, *ranks.group, kept);
  if (ranks.inner == nullptr)
    return over_keys(in, options, packed, ContextComm::p2p, *ranks.group, kept);
  return over_heads(in, options, packed, *ranks.inner, ranks.outer, kept);
}

}  // namespace

Tensor context_attention(const Tensor& qkv, const QkvHeads& heads, const AttentionOptions& options,
                         const PackedSequences& packed, const ContextParallel& ranks, int64_t layer,
                         KeptAttention* kept) {
  return attend({.tensors = {qkv}, .heads = heads}, options, packed, ranks, layer, kept);
}

Tensor context_attention(const Tensor& q, const Tensor& kv, const QkvHeads& heads,
                         const AttentionOptions& options, const PackedSequences& packed,
                         const ContextParallel& ranks, int64_t layer, KeptAttention* kept) {
  return attend({.tensors = {q, kv}, .heads = heads}, options, packed, ranks, layer, kept);
}

}  // namespace phx
