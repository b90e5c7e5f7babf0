#include "phalanx/parallel/context/gathered_attention.h"

#include <algorithm>
#include <set>

#include "phalanx/core/autograd.h"
#include "phalanx/core/compute_stream.h"
#include "phalanx/kernels/elementwise.h"

namespace phx {

namespace {

// Chunks of keys and values one behind the other, in the order of the sequence.
struct KeyChunks {
  std::vector<int64_t> chunks;  // ascending
  Tensor rows;                  // [chunks * c, b, g * (d + dv)]

  int64_t row_of(int64_t chunk, int64_t c) const {
    return (std::ranges::lower_bound(chunks, chunk) - chunks.begin()) * c;
  }
};

// What goes from one rank to another: the chunks of `owner` that `reader` sees.
std::vector<int64_t> travelling(const ContextProblem& problem, int64_t owner, int64_t reader) {
  std::vector<int64_t> chunks = seen_chunks(problem, reader);
  std::erase_if(chunks, [&](int64_t chunk) { return problem.cut.owner(chunk) != owner; });
  return chunks;
}

KeyChunks bring_all(const ContextProblem& problem, Communicator& ranks) {
  const Tensor own = problem.in.keys_and_values();
  Tensor all =
      empty({own.dim(0) * ranks.size(), own.dim(1), own.dim(2)}, own.dtype(), own.device());
  ranks.all_gather(own, all, compute_stream(own));
  KeyChunks keys{.chunks = {}, .rows = in_sequence_order(all, ranks.size())};
  for (int64_t chunk = 0; chunk < problem.cut.num_chunks(); ++chunk) keys.chunks.push_back(chunk);
  return keys;
}

KeyChunks bring_seen(const ContextProblem& problem, Communicator& ranks) {
  const Tensor own = problem.in.keys_and_values();
  const SequenceCut& cut = problem.cut;
  const int64_t c = problem.chunk;
  KeyChunks keys{.chunks = seen_chunks(problem, cut.rank), .rows = {}};
  keys.rows =
      empty({int64_t(keys.chunks.size()) * c, own.dim(1), own.dim(2)}, own.dtype(), own.device());
  std::vector<Message> messages;
  for (int64_t peer = 0; peer < cut.ranks; ++peer) {
    if (peer == cut.rank) continue;
    for (const int64_t chunk : travelling(problem, cut.rank, peer))
      messages.push_back({Message::Kind::send, own.rows(cut.place(chunk) * c, c), int(peer)});
    for (const int64_t chunk : travelling(problem, peer, cut.rank))
      messages.push_back(
          {Message::Kind::receive, keys.rows.rows(keys.row_of(chunk, c), c), int(peer)});
  }
  if (!messages.empty()) ranks.exchange(messages, compute_stream(own));
  for (const int64_t chunk : travelling(problem, cut.rank, cut.rank)) {
    Tensor to = keys.rows.rows(keys.row_of(chunk, c), c);
    copy(own.rows(cut.place(chunk) * c, c), to);
  }
  return keys;
}

KeyChunks bring(const ContextProblem& problem, Bring what, Communicator& ranks) {
  return what == Bring::all ? bring_all(problem, ranks) : bring_seen(problem, ranks);
}

// Gradients of all chunks that this rank read -> the sum over all readers of those it owns, in the
// order of the ranks.
Tensor give_back(const ContextProblem& problem, Bring what, const KeyChunks& gradients,
                 Communicator& ranks) {
  const SequenceCut& cut = problem.cut;
  const int64_t c = problem.chunk;
  const Tensor& rows = gradients.rows;
  Tensor own = empty({2 * c, rows.dim(1), rows.dim(2)}, rows.dtype(), rows.device());
  if (what == Bring::all) {
    ranks.reduce_scatter(in_rank_order(rows, ranks.size()), own, compute_stream(rows));
    return own;
  }
  std::vector<Message> messages;
  std::vector<std::vector<Tensor>> arrived(size_t(cut.ranks));  // by reader, of its chunks in order
  for (int64_t peer = 0; peer < cut.ranks; ++peer) {
    for (const int64_t chunk : travelling(problem, cut.rank, peer)) {
      if (peer == cut.rank) {
        arrived[size_t(peer)].push_back(rows.rows(gradients.row_of(chunk, c), c));
        continue;
      }
      arrived[size_t(peer)].push_back(
          empty({c, rows.dim(1), rows.dim(2)}, rows.dtype(), rows.device()));
      messages.push_back({Message::Kind::receive, arrived[size_t(peer)].back(), int(peer)});
    }
    if (peer == cut.rank) continue;
    for (const int64_t chunk : travelling(problem, peer, cut.rank))
      messages.push_back(
          {Message::Kind::send, rows.rows(gradients.row_of(chunk, c), c), int(peer)});
  }
  if (!messages.empty()) ranks.exchange(messages, compute_stream(rows));
  std::array<bool, 2> begun = {false, false};
  for (int64_t peer = 0; peer < cut.ranks; ++peer) {
    const std::vector<int64_t> chunks = travelling(problem, cut.rank, peer);
    for (size_t i = 0; i < chunks.size(); ++i) {
      const auto place = size_t(cut.place(chunks[i]));
      add_part(arrived[size_t(peer)][i], own.rows(int64_t(place) * c, c), !begun[place]);
      begun[place] = true;  // the rank itself sees both of its chunks
    }
  }
  return own;
}

// Keys that a chunk of queries sees, side by side.
struct SeenKeys {
  Tensor rows;
  int64_t first_row, first_key;
};

// All that it sees; or its own chunk, in which the causal mask begins at the first key, and before
// that the earlier ones, which need no mask: libraries are quick with both, and with nothing else.
std::vector<SeenKeys> seen_keys(const ContextProblem& problem, size_t nth, const KeyChunks& keys) {
  const int64_t c = problem.chunk, own = problem.cut.chunks()[nth];
  const auto [first, last] = problem.seen(own);
  const auto chunks = [&](int64_t begin, int64_t count) {
    const int64_t row = keys.row_of(begin, c);
    return SeenKeys{keys.rows.rows(row, count * c), row, begin * c};
  };
  const bool apart = problem.options.causal && problem.options.window_left < 0 &&
                     !problem.packed.cu_seqlens.defined() && first < own;
  if (!apart) return {chunks(first, last - first + 1)};
  return {chunks(first, own - first), chunks(own, 1)};
}

ContextResult forward(const ContextProblem& problem, Bring what, Communicator& ranks) {
  const QkvHeads& heads = problem.in.heads;
  const int64_t c = problem.chunk;
  const Tensor& like = problem.in.tensors[0];
  const KeyChunks keys = bring(problem, what, ranks);
  ContextResult result{.o = empty({2 * c, problem.in.b(), heads.n * heads.value_channels()},
                                  like.dtype(), like.device()),
                       .lse = {}};
  for (size_t q = 0; q < 2; ++q) {
    MergedAttention queries(problem, q);
    for (const SeenKeys& seen : seen_keys(problem, q, keys))
      queries.add(key_views(seen.rows, heads), seen.first_key);
    result.lse[q] = queries.finish(result.o.rows(int64_t(q) * c, c));
  }
  return result;
}

void backward(const ContextProblem& problem, const ContextResult& result, Bring what,
              Communicator& ranks, const Tensor& d_o, GradOut& grad) {
  const QkvHeads& heads = problem.in.heads;
  const int64_t c = problem.chunk, b = problem.in.b(), n = heads.n, dv = heads.value_channels();
  const KeyChunks keys = bring(problem, what, ranks);
  const Tensor dq = empty({2 * c, b, n * heads.d}, problem.acc(), d_o.device());
  KeyChunks gradients{.chunks = keys.chunks,
                      .rows = empty(keys.rows.shape(), problem.acc(), d_o.device())};
  set_zero(gradients.rows);
  for (size_t q = 0; q < 2; ++q) {
    const int64_t row = int64_t(q) * c;
    bool begun = false;
    for (const SeenKeys& seen : seen_keys(problem, q, keys)) {
      const Tensor dq_part = empty({c, b, n * heads.d}, d_o.dtype(), d_o.device());
      const Tensor part = empty(seen.rows.shape(), d_o.dtype(), d_o.device());
      const KeyViews d = key_views(part, heads);
      kernels::attention_backward(
          chunk_inputs(problem, q, key_views(seen.rows, heads), seen.first_key), problem.options,
          heads_of(result.o, dv, 0, n).rows(row, c), result.lse[q],
          heads_of(d_o, dv, 0, n).rows(row, c),
          {.dq = heads_of(dq_part, heads.d, 0, n), .dk = d.k, .dv = d.v});
      add_part(dq_part, dq.rows(row, c), !begun);
      add_part(part, gradients.rows.rows(seen.first_row, part.dim(0)), /*first=*/false);
      begun = true;
    }
  }
  store_gradients(problem, dq, give_back(problem, what, gradients, ranks), grad);
}

}  // namespace

std::vector<int64_t> seen_chunks(const ContextProblem& problem, int64_t rank) {
  std::set<int64_t> chunks;
  for (const int64_t query_chunk : SequenceCut{problem.cut.ranks, rank}.chunks()) {
    const auto [first, last] = problem.seen(query_chunk);
    for (int64_t chunk = first; chunk <= last; ++chunk) chunks.insert(chunk);
  }
  return {chunks.begin(), chunks.end()};
}

Tensor gathered_attention(const ContextProblem& problem, Bring what, Communicator& ranks,
                          KeptAttention* kept) {
  const ContextResult result =
      kept_or(problem, kept, [&] { return forward(problem, what, ranks); });
  return with_context_backward(
      problem, result,
      [what, &ranks](const ContextProblem& kept, const ContextResult& found, const Tensor& d_o,
                     GradOut& grad) { backward(kept, found, what, ranks, d_o, grad); });
}

}  // namespace phx
