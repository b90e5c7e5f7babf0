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

}  // namespace phx
