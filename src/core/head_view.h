// The heads of attention inside a larger tensor: [s, b, n, d] with any strides over s, b and heads
// and a contiguous last dimension. Packed QKV needs no copies: q, k and v are three views of one
// tensor.
#pragma once

#include "phalanx/core/tensor.h"

namespace phx {

struct HeadView {
  Tensor base;         // what holds the elements
  int64_t offset = 0;  // of element (0, 0, 0, 0), in elements from base's first
  int64_t s = 0, b = 0, n = 0, d = 0;
  int64_t stride_s = 0, stride_b = 0, stride_n = 0;  // in elements

  DType dtype() const { return base.dtype(); }
  Device device() const { return base.device(); }
  // Rows [begin, begin + count) of the sequence.
  HeadView rows(int64_t begin, int64_t count) const {
    PHX_CHECK(begin >= 0 && count >= 0 && begin + count <= s, "rows [", begin, ", ", begin + count,
              ") are not inside of ", s);
    HeadView part = *this;
    part.offset += begin * stride_s;
    part.s = count;
    return part;
  }
  template <class T>
  T* data() const {
    return base.data<T>() + offset;
  }
};

// n heads of d channels each, side by side in the last dimension of x [s, b, any] from `channel`
// on.
inline HeadView heads_from(const Tensor& x, int64_t channel, int64_t d, int64_t n) {
  PHX_CHECK(x.rank() == 3 && channel >= 0 && channel + n * d <= x.dim(2), n, " heads of size ", d,
            " from channel ", channel, " on are not inside of ", x.shape());
  return {.base = x.detach(),
          .offset = channel,
          .s = x.dim(0),
          .b = x.dim(1),
          .n = n,
          .d = d,
          .stride_s = x.dim(1) * x.dim(2),
          .stride_b = x.dim(2),
          .stride_n = d};
}

// Heads [first, first + n) of x [s, b, total * d], whose last dimension is `total` heads of d.
inline HeadView heads_of(const Tensor& x, int64_t d, int64_t first, int64_t n) {
  PHX_CHECK(x.rank() == 3 && x.dim(2) % d == 0 && (first + n) * d <= x.dim(2), "heads [", first,
            ", ", first + n, ") of size ", d, " are not inside of ", x.shape(),
            ", which should be [s, b, heads * d]");
  return heads_from(x, first * d, d, n);
}

}  // namespace phx
