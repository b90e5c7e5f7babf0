#include "phalanx/parallel/context/swap_heads.h"

#include "phalanx/core/autograd.h"
#include "phalanx/core/compute_stream.h"
#include "phalanx/parallel/context/sequence_cut.h"

namespace phx {

namespace {

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
  ranks.all_to_all(sent, received, compute_stream(x));
  return in_sequence_order(received, size);
}

// [size * s, b, w / size] -> [s, b, w]
Tensor collect(const Tensor& y, const std::vector<HeadRun>& runs, Communicator& ranks) {
  const int64_t size = ranks.size(), s = y.dim(0) / size, b = y.dim(1);
  const Tensor sent = in_rank_order(y, size);
  Tensor received = empty(sent.shape(), y.dtype(), y.device());
  ranks.all_to_all(sent, received, compute_stream(y));
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
