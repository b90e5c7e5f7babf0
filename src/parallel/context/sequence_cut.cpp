#include "phalanx/parallel/context/sequence_cut.h"

#include <algorithm>

#include "phalanx/base/error.h"

namespace phx {

std::vector<RowSpan> SequenceCut::spans(int64_t s, int64_t first, int64_t count) const {
  if (ranks == 1) return {{.local = first, .global = first, .count = count}};
  PHX_CHECK(s % (2 * ranks) == 0, "a sequence of ", s,
            " cannot be cut into two chunks for each of ", ranks, " ranks");
  const int64_t c = chunk_rows(s);
  std::vector<RowSpan> spans;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t begin = std::max(first, int64_t(i) * c);
    const int64_t end = std::min(first + count, int64_t(i + 1) * c);
    if (begin < end)
      spans.push_back({.local = begin,
                       .global = chunks()[i] * c + begin - int64_t(i) * c,
                       .count = end - begin});
  }
  return spans;
}

namespace {

// Copies chunks between rows in the order of the ranks and rows in that of the sequence.
Tensor reordered(const Tensor& x, int64_t ranks, bool to_sequence) {
  const SequenceCut cut{.ranks = ranks};
  PHX_CHECK(x.dim(0) % cut.num_chunks() == 0, x.dim(0), " rows are not two chunks for each of ",
            ranks, " ranks");
  const int64_t c = x.dim(0) / cut.num_chunks();
  Tensor y = empty_like(x);
  for (int64_t chunk = 0; chunk < cut.num_chunks(); ++chunk) {
    const int64_t by_rank = 2 * cut.owner(chunk) + cut.place(chunk);
    Tensor to = y.rows((to_sequence ? chunk : by_rank) * c, c);
    copy(x.rows((to_sequence ? by_rank : chunk) * c, c), to);
  }
  return y;
}

}  // namespace

Tensor in_sequence_order(const Tensor& by_rank, int64_t ranks) {
  return reordered(by_rank, ranks, /*to_sequence=*/true);
}

Tensor in_rank_order(const Tensor& sequence, int64_t ranks) {
  return reordered(sequence, ranks, /*to_sequence=*/false);
}

}  // namespace phx
