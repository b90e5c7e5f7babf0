// Which rows of a sequence a rank of context parallelism has.
//
// The sequence is cut into twice as many chunks as there are ranks, and rank r has chunk r and,
// behind it, chunk 2 * ranks - 1 - r, as in Megatron. Later queries see more keys; with an early
// and a late chunk every rank has the same work. Packed sequences are cut as the one row in which
// they lie, wherever they begin: no length has to be a multiple of anything.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "phalanx/core/tensor.h"

namespace phx {

// Rows that follow each other on the rank and in the sequence.
struct RowSpan {
  int64_t local = 0, global = 0, count = 0;
  bool operator==(const RowSpan&) const = default;
};

struct SequenceCut {
  int64_t ranks = 1, rank = 0;
  bool operator==(const SequenceCut&) const = default;

  int64_t rows(int64_t s) const { return s / ranks; }              // of the rank
  int64_t chunk_rows(int64_t s) const { return s / (2 * ranks); }  // of each of its two chunks
  int64_t num_chunks() const { return 2 * ranks; }
  std::array<int64_t, 2> chunks() const { return {rank, 2 * ranks - 1 - rank}; }
  // Who has a chunk, and whether it is its first (0) or its second (1).
  int64_t owner(int64_t chunk) const { return chunk < ranks ? chunk : 2 * ranks - 1 - chunk; }
  int64_t place(int64_t chunk) const { return chunk < ranks ? 0 : 1; }

  // Where the rank's rows [first, first + count) of a sequence of s stand: at most two spans.
  std::vector<RowSpan> spans(int64_t s, int64_t first, int64_t count) const;
  std::vector<RowSpan> spans(int64_t s) const { return spans(s, 0, rows(s)); }
};

// Rows of `ranks` ranks one behind the other, each its two chunks -> rows in the order of the
// sequence, and the way back. Rows are any [2 * ranks * c, ..].
Tensor in_sequence_order(const Tensor& by_rank, int64_t ranks);
Tensor in_rank_order(const Tensor& sequence, int64_t ranks);

}  // namespace phx
