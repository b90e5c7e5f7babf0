// The forward: threads over (sequence, head, block of queries); each runs over the keys that its
// queries see with a running maximum and sum, so that no row of scores is ever whole.
#include "phalanx/kernels/attention.h"

#include "phalanx/kernels/cpu/attention_block.h"

namespace phx::kernels::cpu {

std::vector<Sequence> sequences_of(const AttentionInputs& in, const AttentionOptions& options) {
  std::vector<Sequence> sequences;
  for (int64_t i = 0; i < in.num_seqs(); ++i) {
    const SamplePlace& place = options.random.samples;
    if (!in.packed()) {
      sequences.push_back({0, 0, i, in.q.s, in.k.s, uint32_t(place.first + i * place.stride), 0});
      continue;
    }
    const int32_t* ends = in.cu_seqlens.data<int32_t>();
    const int64_t begin = ends[i], length = ends[i + 1] - ends[i];
    PHX_CHECK((i > 0 || begin == 0) && length >= 0 && length <= in.max_seqlen &&
                  (i + 1 < in.num_seqs() || ends[i + 1] == in.q.s),
              "attention: cu_seqlens should rise from 0 to the number of tokens ", in.q.s,
              " in steps of at most max_seqlen ", in.max_seqlen, ", but sequence ", i, " is [",
              begin, ", ", ends[i + 1], ")");
    // Empty ones fill a list up to a fixed length: there is nothing to do for them.
    const int64_t tokens = place.tokens > 0 ? place.tokens : in.q.s;
    const auto sample = uint32_t(place.first + begin / tokens * place.stride);
    if (length > 0)
      sequences.push_back({begin, begin, 0, length, length, sample, uint32_t(begin % tokens)});
  }
  return sequences;
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
  const int64_t position = first_query + sequence.keys - sequence.queries;
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
    inverse[q] = Acc(1) / scratch.sum[q];
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
