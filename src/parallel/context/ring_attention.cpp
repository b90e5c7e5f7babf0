#include "phalanx/parallel/context/ring_attention.h"

#include <optional>

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/elementwise.h"
#include "phalanx/parallel/tensor/overlap.h"

namespace phx {

namespace {

// One message to the next rank and one from the rank before, on the stream of this axis.
class Pass {
 public:
  Pass(const Tensor& sent, const Tensor& received, Communicator& ranks)
      : exchange_(sent, StreamName::cp), sent_(sent), received_(received) {
    const int size = ranks.size(), rank = ranks.rank();
    const Message messages[] = {
        {.kind = Message::Kind::send, .tensor = sent, .peer = (rank + 1) % size},
        {.kind = Message::Kind::receive, .tensor = received, .peer = (rank + size - 1) % size}};
    ranks.exchange(messages, exchange_.stream());
    exchange_.begun();
  }
  Tensor wait() {
    exchange_.wait();
    return received_;
  }

 private:
  Exchange exchange_;
  Tensor sent_, received_;  // live until the exchange has ended
};

// Goes through the parts of all ranks, own part first. f(keys of the part, its rank).
template <class F>
void round_trip(const Tensor& own, Communicator& ranks, F&& f) {
  Tensor keys = own;
  for (int step = 0; step < ranks.size(); ++step) {
    std::optional<Pass> pass;
    if (step + 1 < ranks.size()) pass.emplace(keys, empty_like(own), ranks);
    f(keys, (ranks.rank() - step + ranks.size()) % ranks.size());
    if (pass) keys = pass->wait();
  }
}

// f(nth chunk of queries, nth chunk of the part, keys of that, their first position) for all pairs
// that see each other.
template <class F>
void for_pairs(const ContextProblem& problem, const Tensor& keys, int64_t from, F&& f) {
  const int64_t c = problem.chunk;
  const SequenceCut part{.ranks = problem.cut.ranks, .rank = from};
  for (size_t q = 0; q < 2; ++q)
    for (size_t k = 0; k < 2; ++k)
      if (problem.sees(problem.cut.chunks()[q], part.chunks()[k]))
        f(q, k, key_views(keys.rows(int64_t(k) * c, c), problem.in.heads), part.chunks()[k] * c);
}

ContextResult forward(const ContextProblem& problem, Communicator& ranks) {
  const int64_t c = problem.chunk;
  const Tensor& like = problem.in.tensors[0];
  std::array<MergedAttention, 2> queries = {MergedAttention(problem, 0),
                                            MergedAttention(problem, 1)};
  round_trip(problem.in.keys_and_values(), ranks, [&](const Tensor& keys, int64_t from) {
    for_pairs(problem, keys, from, [&](size_t q, size_t, const KeyViews& views, int64_t first) {
      queries[q].add(views, first);
    });
  });
  const int64_t width = problem.in.heads.n * problem.in.heads.value_channels();
  ContextResult result{.o = empty({2 * c, problem.in.b(), width}, like.dtype(), like.device()),
                       .lse = {}};
  for (size_t q = 0; q < 2; ++q)
    result.lse[q] = queries[q].finish(result.o.rows(int64_t(q) * c, c));
  return result;
}

// Gradients of the queries that the rank has, and of the keys of one part after the other.
class Backward {
 public:
  Backward(const ContextProblem& problem, const ContextResult& result, const Tensor& d_o)
      : problem_(problem), result_(result), d_o_(d_o) {
    const Tensor& like = problem.in.tensors[0];
    const QkvHeads& heads = problem.in.heads;
    dq_ =
        empty({2 * problem.chunk, problem.in.b(), heads.n * heads.d}, problem.acc(), like.device());
  }
  const Tensor& dq() const { return dq_; }

  // Of the part's keys and values: [2 c, b, g * (d + dv)] in acc_dtype.
  Tensor add(const Tensor& keys, int64_t from) {
    const QkvHeads& heads = problem_.in.heads;
    const int64_t c = problem_.chunk, b = problem_.in.b(), n = heads.n, dv = heads.value_channels();
    Tensor dkv = empty(keys.shape(), problem_.acc(), keys.device());
    std::array<bool, 2> begun = {false, false};
    for_pairs(problem_, keys, from, [&](size_t q, size_t k, const KeyViews& views, int64_t first) {
      const Tensor dq = empty({c, b, n * heads.d}, keys.dtype(), keys.device());
      const Tensor part = empty({c, b, keys.dim(2)}, keys.dtype(), keys.device());
      const KeyViews d = key_views(part, heads);
      const int64_t row = int64_t(q) * c;
      kernels::attention_backward(chunk_inputs(problem_, q, views, first), problem_.options,
                                  heads_of(result_.o, dv, 0, n).rows(row, c), result_.lse[q],
                                  heads_of(d_o_, dv, 0, n).rows(row, c),
                                  {.dq = heads_of(dq, heads.d, 0, n), .dk = d.k, .dv = d.v});
      add_part(dq, dq_.rows(row, c), !queries_begun_[q]);
      add_part(part, dkv.rows(int64_t(k) * c, c), !begun[k]);
      queries_begun_[q] = begun[k] = true;
    });
    for (size_t k = 0; k < 2; ++k) {
      Tensor rows = dkv.rows(int64_t(k) * c, c);
      if (!begun[k]) set_zero(rows);
    }
    return dkv;
  }

 private:
  const ContextProblem& problem_;
  const ContextResult& result_;
  const Tensor& d_o_;
  Tensor dq_;
  std::array<bool, 2> queries_begun_ = {false, false};
};

void backward(const ContextProblem& problem, const ContextResult& result, Communicator& ranks,
              const Tensor& d_o, GradOut& grad) {
  Backward run(problem, result, d_o);
  std::optional<Pass> travelling;  // what ranks before this one found for the part it has next
  round_trip(problem.in.keys_and_values(), ranks, [&](const Tensor& keys, int64_t from) {
    Tensor dkv = run.add(keys, from);
    if (travelling) {
      const Tensor arrived = travelling->wait();
      kernels::add(arrived, dkv, dkv);
    }
    travelling.emplace(dkv, empty_like(dkv), ranks);
  });
  store_gradients(problem, run.dq(), travelling->wait(), grad);
}

}  // namespace

Tensor ring_attention(const ContextProblem& problem, Communicator& ranks, KeptAttention* kept) {
  const ContextResult result = kept_or(problem, kept, [&] { return forward(problem, ranks); });
  return with_context_backward(
      problem, result,
      [&ranks](const ContextProblem& kept, const ContextResult& found, const Tensor& d_o,
               GradOut& grad) { backward(kept, found, ranks, d_o, grad); });
}

}  // namespace phx
