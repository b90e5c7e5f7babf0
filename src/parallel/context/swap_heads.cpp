#include "phalanx/parallel/context/swap_heads.h"

#include "phalanx/core/autograd.h"
#include "phalanx/parallel/context/sequence_cut.h"

namespace phx {

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

Stream compute(const Tensor& x) { return x.runtime().stream(StreamName::compute); }

int64_t channels_of(const std::vector<HeadRun>& runs) {
  int64_t channels = 0;
  for (const HeadRun& run : runs) channels += run.channels();
  return channels;
}

// [s, b, w] -> [size * s, b, w / size]
Tensor spread(const Tensor& x, const std::vector<HeadRun>& runs, Communicator& ranks) {
  const int64_t size = ranks.size(), s = x.dim(0), b = x.dim(1), part = x.dim(2) / size;
  Tensor sent = empty({size * s, b, part}, x.dtype(), x.device());
  Tensor received = empty(sent.shape(), x.dtype(), x.device());
  for (int64_t rank = 0; rank < size; ++rank) {
    const Tensor block = sent.rows(rank * s, s);
    int64_t from = 0, to = 0;
    for (const HeadRun& run : runs) {
      const int64_t width = run.channels() / size;
      copy_columns(x, from + rank * width, width, block, to);
      from += run.channels();
      to += width;
    }
  }
  ranks.all_to_all(sent, received, compute(x));
  return in_sequence_order(received, size);
}

// [size * s, b, w / size] -> [s, b, w]
Tensor collect(const Tensor& y, const std::vector<HeadRun>& runs, Communicator& ranks) {
  const int64_t size = ranks.size(), s = y.dim(0) / size, b = y.dim(1);
  const Tensor sent = in_rank_order(y, size);
  Tensor received = empty(sent.shape(), y.dtype(), y.device());
  ranks.all_to_all(sent, received, compute(y));
  Tensor x = empty({s, b, y.dim(2) * size}, y.dtype(), y.device());
  for (int64_t rank = 0; rank < size; ++rank) {
    const Tensor block = received.rows(rank * s, s);
    int64_t from = 0, to = 0;
    for (const HeadRun& run : runs) {
      const int64_t width = run.channels() / size;
      copy_columns(block, from, width, x, to + rank * width);
      from += width;
      to += run.channels();
    }
  }
  return x;
}

void check_runs(const std::vector<HeadRun>& runs, int64_t channels, const Communicator& ranks) {
  PHX_CHECK(channels_of(runs) == channels, "heads of ", channels_of(runs), " channels are not ",
            channels);
  for (const HeadRun& run : runs)
    PHX_CHECK(run.count % ranks.size() == 0, run.count, " heads cannot be divided among ",
              ranks.size(), " ranks");
}

}  // namespace

Tensor in_sequence_order(const Tensor& by_rank, int64_t ranks) {
  return reordered(by_rank, ranks, /*to_sequence=*/true);
}

Tensor in_rank_order(const Tensor& sequence, int64_t ranks) {
  return reordered(sequence, ranks, /*to_sequence=*/false);
}

Tensor heads_for_positions(const Tensor& x, const std::vector<HeadRun>& runs, Communicator& ranks) {
  check_runs(runs, x.dim(2), ranks);
  return with_backward(
      spread(x, runs, ranks), {x},
      [runs, &ranks](const Tensor& dy, GradOut& grad) { grad.pass(0, collect(dy, runs, ranks)); });
}

Tensor positions_for_heads(const Tensor& y, const std::vector<HeadRun>& runs, Communicator& ranks) {
  check_runs(runs, y.dim(2) * ranks.size(), ranks);
  return with_backward(
      collect(y, runs, ranks), {y},
      [runs, &ranks](const Tensor& dx, GradOut& grad) { grad.pass(0, spread(dx, runs, ranks)); });
}

}  // namespace phx
