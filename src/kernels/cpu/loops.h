// Loops that CPU kernels share.
#pragma once

#include <algorithm>

#include "phalanx/base/math.h"
#include "phalanx/core/autograd.h"
#include "phalanx/core/tensor.h"

namespace phx::kernels::cpu {

inline constexpr int64_t kGrain = 1 << 14;  // elements worth waking another thread for

// f(row) for each row, rows of `width` elements spread over the threads.
template <class F>
void for_rows(const Tensor& x, int64_t rows, int64_t width, F&& f) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(width, 1));
  x.device().threads().parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

// f(begin, end) over elements.
template <class F>
void for_elements(const Tensor& x, F&& f) {
  x.device().threads().parallel_for(x.numel(), kGrain, f);
}

// sink [h] = beta * sink + sum over the first dimension of partial [blocks, >= column + h], in
// order, of the columns from `column` on.
template <class Acc>
void add_blocks(const Tensor& partial, const Sink& sink, int64_t column = 0) {
  const int64_t blocks = partial.dim(0), stride = partial.dim(1), h = sink.tensor.numel();
  const Acc* from = partial.data<Acc>() + column;
  for_float_dtype(sink.tensor.dtype(), [&]<class Y>() {
    Y* out = sink.tensor.data<Y>();
    for (int64_t i = 0; i < h; ++i) {
      Acc total = 0;
      for (int64_t block = 0; block < blocks; ++block) total += from[block * stride + i];
      out[i] = Y(acc_t<Y>((sink.beta != 0.f ? Acc(out[i]) : Acc(0)) + total));
    }
  });
}

}  // namespace phx::kernels::cpu
