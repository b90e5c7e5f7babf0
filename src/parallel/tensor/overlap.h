// Exchanges between tensor-parallel ranks that go along with the neighbouring product: on the tp
// stream, while the compute stream multiplies. Used on GPUs with --tp-comm-overlap.
//
// In a forward the tokens are cut into chunks. With sequence parallelism chunk c holds the c-th
// part of every rank's rows, so that gathering and scattering a chunk leaves every rank's rows in
// order:
//   gather chunk 0 | gather chunk 1, multiply chunk 0 | .. multiply the last
//   multiply chunk 0 | multiply chunk 1, scatter chunk 0 | .. scatter the last
// In a backward the whole exchange goes along with the other product of the layer.
#pragma once

#include "phalanx/kernels/matmul.h"
#include "phalanx/parallel/tensor/tensor_parallel.h"

namespace phx {

// y = x w^T + bias with x gathered: [s/tp, b, in] -> [s, b, out].
void gather_and_multiply(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& y,
                         const TensorParallel& tp);

// The sum over ranks of x w^T: [s, b, in] -> [s/tp or s, b, out].
Tensor multiply_and_sum(const Tensor& x, const Tensor& w, const TensorParallel& tp);

// An exchange on the stream of an axis: begins when the compute stream has come here; wait() lets
// the compute stream wait for its end. Its tensors must live until then.
class Exchange {
 public:
  explicit Exchange(const Tensor& any, StreamName stream = StreamName::tp);
  Stream stream() const { return stream_; }
  void begun();  // everything was enqueued
  void wait();

 private:
  Runtime& runtime_;
  Stream stream_;
  Fence done_;
};

}  // namespace phx
