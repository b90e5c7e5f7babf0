#include "phalanx/kernels/head_norm.h"

#include <cmath>

#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels::cpu {

void head_norm(const Tensor& x, const Tensor& wq, const Tensor& wk, const PackedHeads& heads,
               const NormOptions& options, Tensor& y, Tensor& rstd) {
  const int64_t d = heads.d, normed = heads.n + heads.g, width = heads.total() * d;
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc shift = options.zero_centred ? 1 : 0;
    for_rows(x, x.numel() / width, width, [&](int64_t row) {
      const T* in = x.data<T>() + row * width;
      T* out = y.data<T>() + row * width;
      for (int64_t head = 0; head < normed; ++head, in += d, out += d) {
        const T* w = head < heads.n ? wq.data<T>() : wk.data<T>();
        Acc sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < d; ++i) sum += Acc(in[i]) * Acc(in[i]);
        const Acc r = Acc(1) / std::sqrt(sum / Acc(d) + Acc(options.eps));
        for (int64_t i = 0; i < d; ++i) out[i] = T(Acc(in[i]) * r * (Acc(w[i]) + shift));
        rstd.data<Acc>()[row * normed + head] = r;
      }
      std::copy(in, in + heads.g * d, out);
    });
  });
}

// As rms_norm_backward, head by head.
void head_norm_backward(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& rstd,
                        const Tensor& dy, const PackedHeads& heads, const NormOptions& options,
                        Tensor& workspace, Tensor& dx, const Sink& dwq, const Sink& dwk) {
  const int64_t d = heads.d, normed = heads.n + heads.g, width = heads.total() * d;
  const int64_t rows = x.numel() / width, blocks = workspace.dim(0);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc shift = options.zero_centred ? 1 : 0;
    x.device().threads().parallel_for(blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        Acc* sums = workspace.data<Acc>() + block * 2 * d;
        std::fill(sums, sums + 2 * d, Acc(0));
        const RowRange range = row_block(block, blocks, rows);
        for (int64_t row = range.begin; row < range.end; ++row) {
          const T* in = x.data<T>() + row * width;
          const T* g = dy.data<T>() + row * width;
          T* out = dx.data<T>() + row * width;
          for (int64_t head = 0; head < normed; ++head, in += d, g += d, out += d) {
            const bool query = head < heads.n;
            const T* w = query ? wq.data<T>() : wk.data<T>();
            Acc* dw = query ? sums : sums + d;
            const Acc r = rstd.data<Acc>()[row * normed + head];
            Acc dot = 0;
#pragma omp simd reduction(+ : dot)
            for (int64_t i = 0; i < d; ++i) dot += Acc(g[i]) * (Acc(w[i]) + shift) * Acc(in[i]);
            const Acc mean = dot * r / Acc(d);
            for (int64_t i = 0; i < d; ++i) {
              const Acc xhat = Acc(in[i]) * r;
              dw[i] += Acc(g[i]) * xhat;
              out[i] = T(r * (Acc(g[i]) * (Acc(w[i]) + shift) - xhat * mean));
            }
          }
          std::copy(g, g + heads.g * d, out);
        }
      }
    });
    add_blocks<Acc>(workspace, dwq, /*column=*/0);
    add_blocks<Acc>(workspace, dwk, /*column=*/d);
  });
}

}  // namespace phx::kernels::cpu
