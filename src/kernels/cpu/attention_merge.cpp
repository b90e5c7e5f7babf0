#include "phalanx/kernels/attention_merge.h"

#include <algorithm>
#include <cmath>

#include "phalanx/kernels/cpu/loops.h"

namespace phx::kernels::cpu {

void merge_attention(const Tensor& part, const Tensor& part_lse, const Tensor& o,
                     const Tensor& lse) {
  const int64_t s = part.dim(0), b = part.dim(1), n = lse.dim(1), d = part.dim(2) / n;
  for_float_dtype(part.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    for_rows(part, s * b, n * d, [&](int64_t row) {
      for (int64_t head = 0; head < n; ++head) {
        const int64_t at = (row % b * n + head) * s + row / b;  // in both lse
        Acc& old = lse.data<Acc>()[at];
        const Acc other = part_lse.data<Acc>()[at];
        const Acc top = std::max(old, other), low = std::min(old, other);
        const Acc both = top + std::log1p(std::exp(low - top));
        const Acc keep = std::exp(old - both), add = std::exp(other - both);
        Acc* sum = o.data<Acc>() + (row * n + head) * d;
        const T* values = part.data<T>() + (row * n + head) * d;
        for (int64_t i = 0; i < d; ++i) sum[i] = keep * sum[i] + add * Acc(values[i]);
        old = both;
      }
    });
  });
}

}  // namespace phx::kernels::cpu
