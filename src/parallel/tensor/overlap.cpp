#include "phalanx/parallel/tensor/overlap.h"

#include <vector>

namespace phx {

namespace {

// A product has too little work below this many rows; more chunks than four hide hardly more.
constexpr int64_t kMostChunks = 4, kLeastRows = 256;

// Into how many chunks the `positions` of a rank are cut: a divisor, so that all are alike.
int64_t num_chunks(int64_t positions, int64_t rows_per_position) {
  for (int64_t chunks = kMostChunks; chunks > 1; --chunks)
    if (positions % chunks == 0 && positions / chunks * rows_per_position >= kLeastRows)
      return chunks;
  return 1;
}

int64_t rows_per_position(const Tensor& x) { return x.numel() / (x.dim(0) * x.dim(-1)); }

}  // namespace

Exchange::Exchange(const Tensor& any, StreamName stream)
    : runtime_(any.runtime()), stream_(runtime_.stream(stream)) {
  stream_.wait(runtime_.stream(StreamName::compute).record());
}

void Exchange::begun() { done_ = stream_.record(); }

void Exchange::wait() { runtime_.stream(StreamName::compute).wait(done_); }

void gather_and_multiply(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& y,
                         const TensorParallel& tp) {
  const int64_t own = x.dim(0), ranks = tp.size();  // positions
  const int64_t chunks = num_chunks(own, rows_per_position(x)), part = own / chunks;
  Shape shape = x.shape();
  shape.set(0, own * ranks);
  const Tensor gathered = empty(shape, x.dtype(), x.device());  // [chunks, ranks, part, b, in]
  std::vector<Exchange> exchanges;
  for (int64_t c = 0; c < chunks; ++c) {
    Exchange& exchange = exchanges.emplace_back(x);
    tp.group->all_gather(x.rows(c * part, part), gathered.rows(c * ranks * part, ranks * part),
                         exchange.stream());
    exchange.begun();
  }
  for (int64_t c = 0; c < chunks; ++c) {
    exchanges[size_t(c)].wait();
    for (int64_t r = 0; r < ranks; ++r)
      kernels::matmul(gathered.rows((c * ranks + r) * part, part), w,
                      {.transpose_b = true, .bias = bias}, {y.rows(r * own + c * part, part)});
  }
}

Tensor multiply_and_sum(const Tensor& x, const Tensor& w, const TensorParallel& tp) {
  const bool cut = tp.cuts_sequence();
  const int64_t ranks = cut ? tp.size() : 1, own = x.dim(0) / ranks;  // positions
  const int64_t chunks = num_chunks(own, rows_per_position(x)), part = own / chunks;
  const Shape whole = x.shape().with_last(w.dim(0));
  const Tensor summands = empty(whole, x.dtype(), x.device());  // [chunks, ranks, part, b, out]
  Tensor y = summands;
  if (cut) {
    Shape shape = whole;
    shape.set(0, own);
    y = empty(shape, x.dtype(), x.device());
  }
  std::vector<Exchange> exchanges;
  for (int64_t c = 0; c < chunks; ++c) {
    for (int64_t r = 0; r < ranks; ++r)
      kernels::matmul(x.rows(r * own + c * part, part), w, {.transpose_b = true},
                      {summands.rows((c * ranks + r) * part, part)});
    Exchange& exchange = exchanges.emplace_back(x);
    const Tensor chunk = summands.rows(c * ranks * part, ranks * part);
    if (cut) {
      tp.group->reduce_scatter(chunk, y.rows(c * part, part), exchange.stream());
    } else {
      tp.group->all_reduce(chunk, exchange.stream());
    }
    exchange.begun();
  }
  for (Exchange& exchange : exchanges) exchange.wait();
  return y;
}

}  // namespace phx
