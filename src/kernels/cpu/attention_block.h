// The pieces of the CPU attention: a block of 64 queries against a block of 64 keys.
//
// Scores are held transposed, s [keys, queries]: queries are the lanes of vectors, so maxima, sums
// and rescaling run down the rows without any reduction across lanes, and masks are whole ranges
// of lanes.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "phalanx/base/math.h"
#include "phalanx/core/philox.h"
#include "phalanx/kernels/attention.h"
#include "phalanx/kernels/attention_dropout.h"
#include "phalanx/kernels/cpu/block_gemm.h"
#include "phalanx/kernels/cpu/vector_math.h"

namespace phx::kernels::cpu {

inline constexpr int64_t kQueries = 64, kKeys = 64;  // equal: blocks of either are loaded alike
// Where only part of a block is visible, its keys are taken in chunks, each against the lanes that
// see any of it: on the diagonal that saves nearly half of the work.
inline constexpr int64_t kChunk = 16;

// Stands for a score that nobody sees. Finite, so that a row of nothing else yields no nan; its
// weights vanish exactly once a visible score joins.
inline constexpr double kHidden = -1e30;

template <class Acc>
int64_t padded_head(int64_t d) {
  return round_up(d, kTile<Acc>);
}

// One sequence of the batch, or the part of it that q and k have: where its rows begin in q and in
// k, and how many there are.
struct Sequence {
  int64_t q_row, k_row, batch, queries, keys;
  int64_t position;   // of query 0, counted from key 0
  int64_t first_key;  // place of key 0 within the sequence
  uint32_t sample;    // global, for dropout
  uint32_t place;     // of key 0's position within the sample
};
std::vector<Sequence> sequences_of(const AttentionInputs& in, const AttentionOptions& options);
// For rows of a part that belong to no sequence of the list: nothing else writes them.
void zero_rows(const HeadView& x);

struct Chunk {
  int64_t row, rows;             // keys, relative to the block
  int64_t lane_begin, lane_end;  // queries, multiples of the tile
};

// What queries at positions [position, position + 64) see of keys [first_key, first_key + keys).
struct Block {
  int64_t position, first_key, keys;
  bool causal;
  int64_t window;     // -1: none
  bool full = false;  // everything is visible
  int num_chunks = 0;
  std::array<Chunk, kKeys / kChunk> chunks{};

  template <class Acc>
  static Block of(int64_t position, int64_t first_key, int64_t keys,
                  const AttentionOptions& options) {
    Block block{position, first_key, keys, options.causal, options.window_left};
    const int64_t last_key = first_key + keys - 1, last_position = position + kQueries - 1;
    block.full = (!block.causal || last_key <= position) &&
                 (block.window < 0 || first_key >= last_position - block.window);
    const int64_t step = block.full ? kKeys : kChunk;
    for (int64_t row = 0; row < keys; row += step) {
      Chunk chunk{row, std::min(step, keys - row), 0, kQueries};
      const int64_t key = first_key + row;
      if (block.causal)
        chunk.lane_begin = std::max<int64_t>(key - position, 0) / kTile<Acc> * kTile<Acc>;
      if (block.window >= 0)
        chunk.lane_end = std::clamp<int64_t>(
            round_up(key + chunk.rows - 1 + block.window - position + 1, kTile<Acc>), 0, kQueries);
      if (chunk.lane_begin < chunk.lane_end) block.chunks[block.num_chunks++] = chunk;
    }
    return block;
  }

  // f(row, lane_begin, lane_end) for every row of every chunk.
  template <class F>
  void rows(F&& f) const {
    for (int i = 0; i < num_chunks; ++i)
      for (int64_t row = chunks[i].row; row < chunks[i].row + chunks[i].rows; ++row)
        f(row, chunks[i].lane_begin, chunks[i].lane_end);
  }

  // f(row_begin, row_end, lane_begin, lane_end): pieces of lanes with the rows that they see.
  template <class Acc, class F>
  void lanes(F&& f) const {
    if (full) return f(int64_t{0}, keys, int64_t{0}, kQueries);
    for (int64_t lane = 0; lane < kQueries; lane += kTile<Acc>) {
      int64_t begin = keys, end = 0;
      for (int i = 0; i < num_chunks; ++i) {
        if (lane < chunks[i].lane_begin || lane >= chunks[i].lane_end) continue;
        begin = std::min(begin, chunks[i].row);
        end = std::max(end, chunks[i].row + chunks[i].rows);
      }
      if (begin < end) f(begin, end, lane, lane + kTile<Acc>);
    }
  }

  // Overwrites what is hidden inside of the chunks.
  template <class Acc>
  void hide(Acc* values, Acc with) const {  // [keys, queries]
    if (full) return;
    rows([&](int64_t row, int64_t begin, int64_t end) {
      const int64_t key = first_key + row;
      Acc* lane = values + row * kQueries;
      if (causal) {
        const int64_t first_seeing = std::min(key - position, end);
        if (first_seeing > begin) std::fill(lane + begin, lane + first_seeing, with);
      }
      if (window >= 0) {
        const int64_t last_seeing = std::max(key + window - position, begin - 1);
        if (last_seeing + 1 < end) std::fill(lane + last_seeing + 1, lane + end, with);
      }
    });
  }
};

// The keys that some query of a block sees: [begin, end), begin at a multiple of kKeys.
struct KeyRange {
  int64_t begin, end;
};
inline KeyRange visible_keys(int64_t position, int64_t queries, int64_t keys,
                             const AttentionOptions& options) {
  const int64_t first =
      options.window_left < 0 ? 0 : std::max<int64_t>(0, position - options.window_left);
  return {std::min(first, keys) / kKeys * kKeys,
          options.causal ? std::min(keys, position + queries) : keys};
}

template <class T>
T* row_of(const HeadView& x, int64_t row, int64_t batch, int64_t head) {
  return x.data<T>() + row * x.stride_s + batch * x.stride_b + head * x.stride_n;
}

// to [kQueries, ld] from `count` rows of a head, widened; the other rows and columns are zero. Rows
// of packed QKV lie pages apart, where the hardware fetches nothing ahead, so the code asks for the
// rows to come.
template <class T>
void load_rows(const HeadView& x, int64_t row, int64_t batch, int64_t head, int64_t count,
               acc_t<T>* to, int64_t ld) {
  constexpr int64_t kAhead = 12, kLine = 64 / sizeof(T);
  const T* from = row_of<T>(x, row, batch, head);
  for (int64_t i = 0; i < count; ++i, to += ld, from += x.stride_s) {
    if (i + kAhead < count)
      for (int64_t c = 0; c < x.d; c += kLine) __builtin_prefetch(from + kAhead * x.stride_s + c);
    for (int64_t c = 0; c < x.d; ++c) to[c] = acc_t<T>(from[c]);
    for (int64_t c = x.d; c < ld; ++c) to[c] = 0;
  }
  std::fill(to, to + (kQueries - count) * ld, acc_t<T>(0));
}

// Rows of a head from [count, ld] times factor[row], rounded.
template <class T>
void store_rows(const acc_t<T>* from, int64_t ld, int64_t count, const acc_t<T>* factor,
                const HeadView& x, int64_t row, int64_t batch, int64_t head) {
  T* to = row_of<T>(x, row, batch, head);
  for (int64_t i = 0; i < count; ++i, from += ld, to += x.stride_s)
    for (int64_t c = 0; c < x.d; ++c) to[c] = T(from[c] * factor[i]);
}

// to [columns, rows] = factor * from [rows, columns]^T; both numbers are multiples of 8.
template <class T>
void transpose(int64_t rows, int64_t columns, const T* from, int64_t ld_from, T factor, T* to,
               int64_t ld_to) {
  if constexpr (std::is_same_v<T, float>) {
    // Squares of 8 in registers: three perfect shuffles of the 64 elements swap rows and columns.
    using Vec = detail::Vec<float>;
    for (int64_t i = 0; i < rows; i += 8) {
      for (int64_t j = 0; j < columns; j += 8) {
        Vec at[8], shuffled[8];
        for (int r = 0; r < 8; ++r)
          at[r] = *reinterpret_cast<const Vec*>(from + (i + r) * ld_from + j) * factor;
#pragma GCC unroll 3
        for (int round = 0; round < 3; ++round) {
          for (int r = 0; r < 4; ++r) {
            shuffled[2 * r] = __builtin_shufflevector(at[r], at[r + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            shuffled[2 * r + 1] =
                __builtin_shufflevector(at[r], at[r + 4], 4, 12, 5, 13, 6, 14, 7, 15);
          }
          for (int r = 0; r < 8; ++r) at[r] = shuffled[r];
        }
        for (int r = 0; r < 8; ++r) *reinterpret_cast<Vec*>(to + (j + r) * ld_to + i) = at[r];
      }
    }
  } else {
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i) to[j * ld_to + i] = from[i * ld_from + j] * factor;
  }
}

// s = softcap(k qt), both already scaled. k [keys, ld], qt [d, queries].
template <class Acc>
void block_scores(const Block& block, int64_t d, const Acc* k, int64_t ld, const Acc* qt,
                  Acc softcap, Acc* s) {
  for (int i = 0; i < block.num_chunks; ++i) {
    const Chunk& chunk = block.chunks[i];
    block_gemm<Acc>(chunk.rows, chunk.lane_end - chunk.lane_begin, d, {k + chunk.row * ld, ld, 1},
                    qt + chunk.lane_begin, kQueries, s + chunk.row * kQueries + chunk.lane_begin,
                    kQueries, false);
  }
  if (softcap == 0) return;
  block.rows([&](int64_t row, int64_t begin, int64_t end) {
    Acc* lane = s + row * kQueries;
#pragma omp simd
    for (int64_t q = begin; q < end; ++q) lane[q] = softcap * fast_tanh(lane[q] / softcap);
  });
}

// keep [keys, queries] = 0 or 1 / (1 - p). Keys are counted in the whole sequence, where the block
// may begin anywhere.
template <class Acc>
void block_dropout(const Block& block, const AttentionOptions& options, const Sequence& sequence,
                   int64_t head, Acc* keep) {
  const AttentionRandom& random = options.random;
  const uint64_t key = philox_key(random.seed, random.site, random.step);
  const uint32_t threshold = attention_dropout_threshold(options.dropout);
  const Acc kept = Acc(attention_dropout_scale(options.dropout));
  const int64_t begin = sequence.first_key + block.first_key, last = begin + block.keys;
  for (int64_t group = begin / kDropoutKeys * kDropoutKeys; group < last; group += kDropoutKeys) {
    const int64_t from = std::max(begin, group), end = std::min(last, group + kDropoutKeys);
    for (int64_t q = 0; q < kQueries; ++q) {
      uint32_t bits[4];
      for (uint32_t call = 0; call < 4; ++call)
        bits[call] = kept_bits(
            philox4x32(key, sequence.sample, uint32_t(random.first_head + head),
                       sequence.place + uint32_t(block.position + q), dropout_call(group) + call),
            threshold);
      for (int64_t at = from; at < end; ++at)
        keep[(at - begin) * kQueries + q] =
            bits[at % 8 / 2] >> dropout_bit(at) & 1u ? kept : Acc(0);
    }
  }
}

}  // namespace phx::kernels::cpu
