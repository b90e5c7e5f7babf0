// The backward: a task is a (sequence, key head) with all query heads of its group, or one of
// several parts of it. It runs over blocks of queries; their dq stays in registers and cache, dk
// and dv are added up in the task's accumulators. Parts are added in order: no sum depends on the
// number of threads.
//
// With p = exp(s - lse), delta = rowsum(do o) and e the derivative of the softcap:
//   dv = p^T do,   ds = p (do v^T - delta) e,   dq = scale ds k,   dk = scale ds^T q
#include "phalanx/kernels/attention.h"
#include "phalanx/kernels/cpu/attention_block.h"

namespace phx::kernels::cpu {

namespace {

constexpr int64_t kParts = 16;  // tasks that keep a few threads busy

template <class Acc>
struct alignas(64) Scratch {
  alignas(64) Acc q[kQueries * kMaxHeadSize], qt[kMaxHeadSize * kQueries];
  alignas(64) Acc d_o[kQueries * kMaxHeadSize], d_ot[kMaxHeadSize * kQueries];
  alignas(64) Acc dqt[kMaxHeadSize * kQueries];
  alignas(64) Acc k[kKeys * kMaxHeadSize], v[kKeys * kMaxHeadSize];
  alignas(64) Acc p[kKeys * kQueries], ds[kKeys * kQueries], keep[kKeys * kQueries];
  alignas(64) Acc lse[kQueries], delta[kQueries];
};

struct Problem {
  const AttentionInputs& in;
  const AttentionOptions& options;
  const HeadView& o;
  const Tensor& lse;
  const HeadView& d_o;
  const AttentionGradients& grads;
};

// Loads what a block of queries needs. Lanes beyond the last query are zero and add nothing.
template <class T>
void load_queries(const Problem& problem, const Sequence& sequence, int64_t head, int64_t first,
                  int64_t queries, Scratch<acc_t<T>>& scratch) {
  using Acc = acc_t<T>;
  const AttentionInputs& in = problem.in;
  const int64_t ld = padded_head<Acc>(in.q.d), row = sequence.q_row + first;
  load_rows<T>(in.q, row, sequence.batch, head, queries, scratch.q, ld);
  load_rows<T>(problem.d_o, row, sequence.batch, head, queries, scratch.d_o, ld);
  transpose(kQueries, ld, scratch.q, ld, Acc(attention_scale(in, problem.options)), scratch.qt,
            kQueries);
  transpose(kQueries, ld, scratch.d_o, ld, Acc(1), scratch.d_ot, kQueries);
  std::fill(scratch.dqt, scratch.dqt + ld * kQueries, Acc(0));
  const Acc* lse = problem.lse.data<Acc>() + (sequence.batch * in.q.n + head) * in.q.s + row;
  for (int64_t i = 0; i < kQueries; ++i) {
    Acc sum = 0;
    if (i < queries) {
      const T* out = row_of<T>(problem.o, row + i, sequence.batch, head);
      const Acc* d_out = scratch.d_o + i * ld;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < in.v.d; ++c) sum += d_out[c] * Acc(out[c]);
    }
    scratch.delta[i] = sum;
    scratch.lse[i] = i < queries ? lse[i] : Acc(0);
  }
}

// From scores in p and do v^T in ds to the weights p that met v, and ds.
template <class Acc>
void differentiate(const Block& block, const AttentionOptions& options, Scratch<Acc>& scratch) {
  const Acc softcap = Acc(options.softcap), inverse_cap = softcap > 0 ? Acc(1) / softcap : Acc(0);
  const bool dropped = options.dropout > 0;
  block.rows([&](int64_t row, int64_t begin, int64_t end) {
    Acc* p = scratch.p + row * kQueries;
    Acc* ds = scratch.ds + row * kQueries;
    const Acc* keep = scratch.keep + row * kQueries;
    if (dropped)
      for (int64_t q = begin; q < end; ++q) ds[q] *= keep[q];
#pragma omp simd
    for (int64_t q = begin; q < end; ++q) {
      const Acc bent = p[q] * inverse_cap;  // tanh; 0 without a cap
      const Acc weight = fast_exp(p[q] - scratch.lse[q]);
      ds[q] = weight * (ds[q] - scratch.delta[q]) * (Acc(1) - bent * bent);
      p[q] = weight;
    }
    if (dropped)
      for (int64_t q = begin; q < end; ++q) p[q] *= keep[q];
  });
  block.hide(scratch.p, Acc(0));
  block.hide(scratch.ds, Acc(0));
}

template <class T>
void backward_block(const Problem& problem, const Sequence& sequence, int64_t head, int64_t first,
                    Scratch<acc_t<T>>& scratch, acc_t<T>* dk, acc_t<T>* dv) {  // [keys, ld]
  using Acc = acc_t<T>;
  const AttentionInputs& in = problem.in;
  const AttentionOptions& options = problem.options;
  const int64_t d = in.q.d, ld = padded_head<Acc>(d), key_head = head / (in.q.n / in.k.n);
  const int64_t queries = std::min(kQueries, sequence.queries - first);
  const int64_t position = first + sequence.position;
  load_queries<T>(problem, sequence, head, first, queries, scratch);

  const KeyRange range = visible_keys(position, queries, sequence.keys, options);
  for (int64_t key = range.begin; key < range.end; key += kKeys) {
    const int64_t keys = std::min(kKeys, range.end - key);
    const Block block = Block::of<Acc>(position, key, keys, options);
    load_rows<T>(in.k, sequence.k_row + key, sequence.batch, key_head, keys, scratch.k, ld);
    load_rows<T>(in.v, sequence.k_row + key, sequence.batch, key_head, keys, scratch.v, ld);
    if (options.dropout > 0) block_dropout(block, options, sequence, head, scratch.keep);
    block_scores<Acc>(block, d, scratch.k, ld, scratch.qt, Acc(options.softcap), scratch.p);
    block_scores<Acc>(block, in.v.d, scratch.v, ld, scratch.d_ot, Acc(0), scratch.ds);
    differentiate(block, options, scratch);
    for (int i = 0; i < block.num_chunks; ++i) {
      const Chunk& chunk = block.chunks[i];
      const int64_t lane = chunk.lane_begin, depth = chunk.lane_end - lane;
      const int64_t at = chunk.row * kQueries + lane, to = (key + chunk.row) * ld;
      block_gemm<Acc>(chunk.rows, ld, depth, {scratch.p + at, kQueries, 1}, scratch.d_o + lane * ld,
                      ld, dv + to, ld, true);
      block_gemm<Acc>(chunk.rows, ld, depth, {scratch.ds + at, kQueries, 1}, scratch.q + lane * ld,
                      ld, dk + to, ld, true);
    }
    block.lanes<Acc>([&](int64_t row, int64_t row_end, int64_t lane, int64_t lane_end) {
      block_gemm<Acc>(d, lane_end - lane, row_end - row, {scratch.k + row * ld, 1, ld},
                      scratch.ds + row * kQueries + lane, kQueries, scratch.dqt + lane, kQueries,
                      true);
    });
  }

  Acc* scales = scratch.delta;  // no longer needed
  std::fill(scales, scales + kQueries, Acc(attention_scale(in, options)));
  transpose(ld, kQueries, scratch.dqt, kQueries, Acc(1), scratch.q, ld);
  store_rows<T>(scratch.q, ld, queries, scales, problem.grads.dq, sequence.q_row + first,
                sequence.batch, head);
}

// Adds parts 1 .. of rows [row, row + rows) to part 0, in order; they are `stride` apart.
template <class Acc>
void add_parts(Acc* first, int64_t ld, int64_t parts, int64_t stride, int64_t row, int64_t rows) {
  for (int64_t part = 1; part < parts; ++part)
    for (int64_t i = row * ld; i < (row + rows) * ld; ++i) first[i] += first[part * stride + i];
}

// dk and dv of keys [row, row + rows), at most a block of them, from their sums.
template <class T>
void store_keys(const Problem& problem, const acc_t<T>* dk, const acc_t<T>* dv,
                const Sequence& sequence, int64_t key_head, int64_t row, int64_t rows) {
  using Acc = acc_t<T>;
  const int64_t ld = padded_head<Acc>(problem.in.q.d);
  std::array<Acc, kKeys> scales, ones;
  scales.fill(Acc(attention_scale(problem.in, problem.options)));
  ones.fill(Acc(1));
  store_rows<T>(dk + row * ld, ld, rows, scales.data(), problem.grads.dk, sequence.k_row + row,
                sequence.batch, key_head);
  store_rows<T>(dv + row * ld, ld, rows, ones.data(), problem.grads.dv, sequence.k_row + row,
                sequence.batch, key_head);
}

}  // namespace

BackwardSplit attention_backward_split(const AttentionInputs& in) {
  const int64_t groups = std::max<int64_t>(1, in.num_seqs() * in.k.n);
  const int64_t blocks =
      std::max<int64_t>(1, in.q.n / in.k.n * ceil_div(in.max_queries(), kQueries));
  const int64_t splits = std::min(ceil_div(kParts, groups), blocks);
  return {splits, splits > 1 ? groups * splits : std::min(groups, kParts)};
}

int64_t attention_workspace_bytes(const AttentionInputs& in, AttentionPass pass) {
  if (pass == AttentionPass::forward) return 0;
  const bool wide = in.q.dtype() == DType::f64;
  const int64_t ld = wide ? padded_head<double>(in.q.d) : padded_head<float>(in.q.d);
  return attention_backward_split(in).slots * 2 * in.max_keys() * ld * (wide ? 8 : 4);
}

void attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                        const HeadView& o, const Tensor& lse, const HeadView& d_o,
                        Tensor& workspace, const AttentionGradients& grads) {
  const Problem problem{in, options, o, lse, d_o, grads};
  const auto sequences = sequences_of(in, options);
  if (in.packed() && in.place)
    for (const HeadView* x : {&grads.dq, &grads.dk, &grads.dv}) zero_rows(*x);
  // Names of their own: a lambda of C++20 may not capture those of a structured binding in
  // clang 14.
  const auto cut = attention_backward_split(in);
  const int64_t splits = cut.splits, slots = cut.slots;
  const int64_t groups = int64_t(sequences.size()) * in.k.n, group_heads = in.q.n / in.k.n;
  ThreadPool& threads = in.q.device().threads();

  for_float_dtype(in.q.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const int64_t ld = padded_head<Acc>(in.q.d), half = in.max_keys() * ld;  // dk, then dv
    auto* accumulators = static_cast<Acc*>(workspace.raw());
    threads.parallel_for(std::min(slots, groups * splits), 1, [&](int64_t begin, int64_t end) {
      Scratch<Acc> scratch;
      for (int64_t slot = begin; slot < end; ++slot) {
        Acc* dk = accumulators + slot * 2 * half;
        for (int64_t task = slot; task < groups * splits; task += slots) {
          const Sequence& sequence = sequences[task / splits / in.k.n];
          const int64_t key_head = task / splits % in.k.n, part = task % splits;
          const int64_t blocks = ceil_div(sequence.queries, kQueries);
          std::fill(dk, dk + sequence.keys * ld, Acc(0));
          std::fill(dk + half, dk + half + sequence.keys * ld, Acc(0));
          for (int64_t i = part; i < group_heads * blocks; i += splits)
            backward_block<T>(problem, sequence, key_head * group_heads + i / blocks,
                              i % blocks * kQueries, scratch, dk, dk + half);
          if (splits > 1) continue;
          for (int64_t row = 0; row < sequence.keys; row += kKeys)
            store_keys<T>(problem, dk, dk + half, sequence, key_head, row,
                          std::min(kKeys, sequence.keys - row));
        }
      }
    });
    if (splits == 1) return;
    const int64_t pieces = ceil_div(in.max_keys(), kKeys);
    threads.parallel_for(groups * pieces, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t group = i / pieces, row = i % pieces * kKeys;
        const Sequence& sequence = sequences[group / in.k.n];
        const int64_t rows = std::min(kKeys, sequence.keys - row);
        if (rows <= 0) continue;  // a shorter sequence
        Acc* dk = accumulators + group * splits * 2 * half;
        add_parts(dk, ld, splits, 2 * half, row, rows);
        add_parts(dk + half, ld, splits, 2 * half, row, rows);
        store_keys<T>(problem, dk, dk + half, sequence, group % in.k.n, row, rows);
      }
    });
  });
}

}  // namespace phx::kernels::cpu
