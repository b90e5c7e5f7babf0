// Linear maps whose weight is cut over the tensor-parallel ranks, as ops. What is kept for the
// backward is the rank's part of the input; with sequence parallelism the whole input is gathered
// again there.
#pragma once

#include "phalanx/ops/linear.h"
#include "phalanx/parallel/tensor/tensor_parallel.h"

namespace phx {

// w [out/tp, in], b [out/tp] or undefined: x [s/tp or s, b, in] -> [s, b, out/tp]
Tensor column_linear(const Tensor& x, const Tensor& w, const Tensor& b, const TensorParallel& tp,
                     const Remake& remake = {});

// w [out, in/tp]: x [s, b, in/tp] -> [s/tp or s, b, out], summed over the ranks. The bias belongs
// behind the sum, so it is not added here.
Tensor row_linear(const Tensor& x, const Tensor& w, const TensorParallel& tp,
                  const Remake& remake = {});

}  // namespace phx
