// The forward: threads over (sequence, head, block of queries); each runs over the keys that its
// queries see with a running maximum and sum, so that no row of scores is ever whole.
#include "phalanx/kernels/attention.h"

#include <limits>

#include "phalanx/kernels/cpu/attention_block.h"

namespace phx::kernels::cpu {

namespace {

void check_ends(const AttentionInputs& in, int64_t i, int64_t begin, int64_t end) {
  const bool last = i + 1 == in.num_seqs();
  PHX_CHECK((i > 0 || begin == 0) && end >= begin && end - begin <= in.max_seqlen &&
                (!last || in.place || end == in.q.s),
            "attention: cu_seqlens should rise from 0 to the number of tokens ", in.q.s,
            " in steps of at most max_seqlen ", in.max_seqlen, ", but sequence ", i, " is [", begin,
            ", ", end, ")");
}

}  // namespace

std::vector<Sequence> sequences_of(const AttentionInputs& in, const AttentionOptions& options) {
  std::vector<Sequence> sequences;
  const AttentionPlace first = in.place.value_or(AttentionPlace{});
  const SamplePlace& place = options.random.samples;
  for (int64_t i = 0; i < in.num_seqs(); ++i) {
    if (!in.packed()) {
      sequences.push_back({.q_row = 0,
                           .k_row = 0,
                           .batch = i,
                           .queries = in.q.s,
                           .keys = in.k.s,
                           .position = in.first_position(),
                           .first_key = first.key,
                           .sample = uint32_t(place.first + i * place.stride),
                           .place = uint32_t(first.key)});
      continue;
    }
    const int32_t* ends = in.cu_seqlens.data<int32_t>();
    const int64_t begin = ends[i], end = ends[i + 1];
    check_ends(in, i, begin, end);
    // What q and k have of it. Empty sequences fill a list up to a fixed length.
    const int64_t q_begin = std::max(begin, first.query),
                  q_end = std::min(end, first.query + in.q.s);
    const int64_t k_begin = std::max(begin, first.key), k_end = std::min(end, first.key + in.k.s);
    if (q_begin >= q_end || k_begin >= k_end) continue;
    const int64_t tokens = place.tokens > 0 ? place.tokens : end;  // else the row is one sample
    sequences.push_back({.q_row = q_begin - first.query,
                         .k_row = k_begin - first.key,
                         .batch = 0,
                         .queries = q_end - q_begin,
                         .keys = k_end - k_begin,
                         .position = q_begin - k_begin,
                         .first_key = k_begin - begin,
                         .sample = uint32_t(place.first + begin / tokens * place.stride),
                         .place = uint32_t(begin % tokens + k_begin - begin)});
  }
  return sequences;
}

void zero_rows(const HeadView& x) {
  for_float_dtype(x.dtype(), [&]<class T>() {
    for (int64_t s = 0; s < x.s; ++s)
      for (int64_t b = 0; b < x.b; ++b)
        for (int64_t n = 0; n < x.n; ++n) {
          T* row = row_of<T>(x, s, b, n);
          std::fill(row, row + x.d, T(0));
        }
  });
}

namespace {

template <class Acc>
struct alignas(64) Scratch {
  alignas(64) Acc rows[kQueries * kMaxHeadSize];  // q and o, as they are stored
  alignas(64) Acc qt[kMaxHeadSize * kQueries];
  alignas(64) Acc ot[kMaxHeadSize * kQueries];
  alignas(64) Acc k[kKeys * kMaxHeadSize];
  alignas(64) Acc v[kKeys * kMaxHeadSize];
  alignas(64) Acc p[kKeys * kQueries];
  alignas(64) Acc keep[kKeys * kQueries];
  alignas(64) Acc top[kQueries], sum[kQueries], shrink[kQueries];
};

// s becomes exp(s - new maximum); `sum` and `top` follow, `shrink` is what older weights lose.
template <class Acc>
void fold(const Block& block, Acc* s, Acc* top, Acc* sum, Acc* shrink) {
  alignas(64) Acc highest[kQueries];
  std::copy(top, top + kQueries, highest);
  block.rows([&](int64_t row, int64_t begin, int64_t end) {
    const Acc* lane = s + row * kQueries;
#pragma omp simd
    for (int64_t q = begin; q < end; ++q) highest[q] = lane[q] > highest[q] ? lane[q] : highest[q];
  });
#pragma omp simd
  for (int64_t q = 0; q < kQueries; ++q) {
    shrink[q] = fast_exp(top[q] - highest[q]);
    top[q] = highest[q];
    sum[q] *= shrink[q];
  }
  block.rows([&](int64_t row, int64_t begin, int64_t end) {
    Acc* lane = s + row * kQueries;
#pragma omp simd
    for (int64_t q = begin; q < end; ++q) {
      lane[q] = fast_exp(lane[q] - highest[q]);
      sum[q] += lane[q];
    }
  });
}

template <class T>
void forward_block(const AttentionInputs& in, const AttentionOptions& options,
                   const Sequence& sequence, int64_t head, int64_t first_query,
                   Scratch<acc_t<T>>& scratch, const HeadView& o, acc_t<T>* lse) {
  using Acc = acc_t<T>;
  const int64_t d = in.q.d, ld = padded_head<Acc>(d), key_head = head / (in.q.n / in.k.n);
  const int64_t queries = std::min(kQueries, sequence.queries - first_query);
  const int64_t position = first_query + sequence.position;
  load_rows<T>(in.q, sequence.q_row + first_query, sequence.batch, head, queries, scratch.rows, ld);
  transpose(kQueries, ld, scratch.rows, ld, Acc(attention_scale(in, options)), scratch.qt,
            kQueries);
  std::fill(scratch.ot, scratch.ot + ld * kQueries, Acc(0));
  std::fill(scratch.top, scratch.top + kQueries, Acc(kHidden));
  std::fill(scratch.sum, scratch.sum + kQueries, Acc(0));

  const KeyRange range = visible_keys(position, queries, sequence.keys, options);
  for (int64_t key = range.begin; key < range.end; key += kKeys) {
    const int64_t keys = std::min(kKeys, range.end - key);
    const Block block = Block::of<Acc>(position, key, keys, options);
    load_rows<T>(in.k, sequence.k_row + key, sequence.batch, key_head, keys, scratch.k, ld);
    load_rows<T>(in.v, sequence.k_row + key, sequence.batch, key_head, keys, scratch.v, ld);
    block_scores<Acc>(block, d, scratch.k, ld, scratch.qt, Acc(options.softcap), scratch.p);
    block.hide(scratch.p, Acc(kHidden));
    fold(block, scratch.p, scratch.top, scratch.sum, scratch.shrink);
    for (int64_t c = 0; c < in.v.d; ++c) {
      Acc* lane = scratch.ot + c * kQueries;
      for (int64_t q = 0; q < kQueries; ++q) lane[q] *= scratch.shrink[q];
    }
    if (options.dropout > 0) {
      block_dropout(block, options, sequence, head, scratch.keep);
      block.rows([&](int64_t row, int64_t begin, int64_t end) {
        for (int64_t i = row * kQueries + begin; i < row * kQueries + end; ++i)
          scratch.p[i] *= scratch.keep[i];
      });
    }
    block.lanes<Acc>([&](int64_t row, int64_t row_end, int64_t lane, int64_t lane_end) {
      block_gemm<Acc>(in.v.d, lane_end - lane, row_end - row, {scratch.v + row * ld, 1, ld},
                      scratch.p + row * kQueries + lane, kQueries, scratch.ot + lane, kQueries,
                      true);
    });
  }

  transpose(ld, kQueries, scratch.ot, kQueries, Acc(1), scratch.rows, ld);
  Acc* inverse = scratch.shrink;
  for (int64_t q = 0; q < queries; ++q) {
    inverse[q] = scratch.sum[q] > 0 ? Acc(1) / scratch.sum[q] : Acc(0);  // 0: it sees no key
    lse[q] = scratch.top[q] + std::log(scratch.sum[q]);
  }
  store_rows<T>(scratch.rows, ld, queries, inverse, o, sequence.q_row + first_query, sequence.batch,
                head);
}

}  // namespace

void attention(const AttentionInputs& in, const AttentionOptions& options, Tensor&,
               const HeadView& o, Tensor& lse) {
  const auto sequences = sequences_of(in, options);
  const int64_t n = in.q.n;
  std::vector<int64_t> first_task = {0};  // per sequence: n heads of so many blocks
  for (const Sequence& sequence : sequences)
    first_task.push_back(first_task.back() + n * ceil_div(sequence.queries, kQueries));

  for_float_dtype(in.q.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    if (in.packed() && in.place) {
      zero_rows(o);
      std::fill(lse.data<Acc>(), lse.data<Acc>() + lse.numel(),
                -std::numeric_limits<Acc>::infinity());
    }
    in.q.device().threads().parallel_for(first_task.back(), 1, [&](int64_t begin, int64_t end) {
      Scratch<Acc> scratch;
      for (int64_t task = begin; task < end; ++task) {
        const auto at = std::upper_bound(first_task.begin(), first_task.end(), task) - 1;
        const Sequence& sequence = sequences[at - first_task.begin()];
        const int64_t blocks = ceil_div(sequence.queries, kQueries), turn = (task - *at) % blocks;
        const int64_t head = (task - *at) / blocks;
        // First, last, second, last but one: later queries see more keys, and so every piece of
        // the tasks gets an even share.
        const int64_t block = turn % 2 == 0 ? turn / 2 : blocks - 1 - turn / 2;
        Acc* sums = lse.data<Acc>() + (sequence.batch * n + head) * in.q.s + sequence.q_row +
                    block * kQueries;
        forward_block<T>(in, options, sequence, head, block * kQueries, scratch, o, sums);
      }
    });
  });
}

}  // namespace phx::kernels::cpu
