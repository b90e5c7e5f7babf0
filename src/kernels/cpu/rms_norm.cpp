#include "phalanx/kernels/rms_norm.h"

#include <cmath>

#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels::cpu {

void rms_norm(const Tensor& x, const Tensor& w, const NormOptions& options, Tensor& y,
              Tensor& rstd) {
  const int64_t h = x.dim(-1), rows = x.numel() / h;
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc shift = options.zero_centred ? 1 : 0;
    const T* weight = w.data<T>();
    for_rows(x, rows, h, [&](int64_t row) {
      const T* in = x.data<T>() + row * h;
      T* out = y.data<T>() + row * h;
      Acc sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < h; ++i) sum += Acc(in[i]) * Acc(in[i]);
      const Acc r = Acc(1) / std::sqrt(sum / Acc(h) + Acc(options.eps));
      for (int64_t i = 0; i < h; ++i) out[i] = T(Acc(in[i]) * r * (Acc(weight[i]) + shift));
      rstd.data<Acc>()[row] = r;
    });
  });
}

// With xhat = x r and g = dy w:  dx = r (g - xhat mean(g xhat)),  dw = sum over rows of dy xhat.
void rms_norm_backward(const Tensor& x, const Tensor& w, const Tensor& rstd, const Tensor& dy,
                       const NormOptions& options, Tensor& workspace, const Sink& dx,
                       const Sink& dw) {
  const int64_t h = x.dim(-1), rows = x.numel() / h, blocks = workspace.dim(0);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc shift = options.zero_centred ? 1 : 0;
    const bool keep = dx.beta != 0.f;
    const T* weight = w.data<T>();
    x.device().threads().parallel_for(blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        Acc* sums = workspace.data<Acc>() + block * h;
        std::fill(sums, sums + h, Acc(0));
        const RowRange range = row_block(block, blocks, rows);
        for (int64_t row = range.begin; row < range.end; ++row) {
          const T* in = x.data<T>() + row * h;
          const T* d = dy.data<T>() + row * h;
          T* out = dx.tensor.data<T>() + row * h;
          const Acc r = rstd.data<Acc>()[row];
          Acc dot = 0;
#pragma omp simd reduction(+ : dot)
          for (int64_t i = 0; i < h; ++i) dot += Acc(d[i]) * (Acc(weight[i]) + shift) * Acc(in[i]);
          const Acc mean = dot * r / Acc(h);  // of g xhat
          for (int64_t i = 0; i < h; ++i) {
            const Acc xhat = Acc(in[i]) * r;
            sums[i] += Acc(d[i]) * xhat;
            const Acc value = r * (Acc(d[i]) * (Acc(weight[i]) + shift) - xhat * mean);
            out[i] = T(keep ? Acc(out[i]) + value : value);
          }
        }
      }
    });
    add_blocks<Acc>(workspace, dw);
  });
}

}  // namespace phx::kernels::cpu
