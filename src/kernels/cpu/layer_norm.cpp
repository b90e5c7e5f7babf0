#include "phalanx/kernels/layer_norm.h"

#include <cmath>

#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels::cpu {

void layer_norm(const Tensor& x, const Tensor& w, const Tensor& bias, const NormOptions& options,
                Tensor& y, Tensor& mean, Tensor& rstd) {
  const int64_t h = x.dim(-1), rows = x.numel() / h;
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc shift = options.zero_centred ? 1 : 0;
    const T* weight = w.data<T>();
    const T* offset = bias.defined() ? bias.data<T>() : nullptr;
    for_rows(x, rows, h, [&](int64_t row) {
      const T* in = x.data<T>() + row * h;
      T* out = y.data<T>() + row * h;
      Acc sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < h; ++i) sum += Acc(in[i]);
      const Acc m = sum / Acc(h);
      Acc square = 0;  // around the mean: E[x^2] - E[x]^2 would cancel
#pragma omp simd reduction(+ : square)
      for (int64_t i = 0; i < h; ++i) square += (Acc(in[i]) - m) * (Acc(in[i]) - m);
      const Acc r = Acc(1) / std::sqrt(square / Acc(h) + Acc(options.eps));
      if (offset) {
        for (int64_t i = 0; i < h; ++i)
          out[i] = T((Acc(in[i]) - m) * r * (Acc(weight[i]) + shift) + Acc(offset[i]));
      } else {
        for (int64_t i = 0; i < h; ++i) out[i] = T((Acc(in[i]) - m) * r * (Acc(weight[i]) + shift));
      }
      mean.data<Acc>()[row] = m;
      rstd.data<Acc>()[row] = r;
    });
  });
}

// With xhat = (x - mean) r and g = dy w:  dx = r (g - mean(g) - xhat mean(g xhat)),  dw = sum over
// rows of dy xhat,  dbias = sum over rows of dy.
void layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy, const NormOptions& options,
                         Tensor& workspace, const LayerNormSinks& sinks) {
  const int64_t h = dy.dim(-1), rows = dy.numel() / h, blocks = workspace.dim(1);
  for_float_dtype(dy.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc shift = options.zero_centred ? 1 : 0;
    const bool keep = sinks.dx.beta != 0.f;
    const T* weight = saved.w.data<T>();
    dy.device().threads().parallel_for(blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        Acc* dw = workspace.data<Acc>() + block * h;
        Acc* dbias = dw + blocks * h;
        std::fill(dw, dw + h, Acc(0));
        std::fill(dbias, dbias + h, Acc(0));
        const RowRange range = row_block(block, blocks, rows);
        for (int64_t row = range.begin; row < range.end; ++row) {
          const T* in = saved.x.data<T>() + row * h;
          const T* d = dy.data<T>() + row * h;
          T* out = sinks.dx.tensor.data<T>() + row * h;
          const Acc m = saved.mean.data<Acc>()[row], r = saved.rstd.data<Acc>()[row];
          Acc sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
          for (int64_t i = 0; i < h; ++i) {
            const Acc g = Acc(d[i]) * (Acc(weight[i]) + shift);
            sum += g;
            dot += g * (Acc(in[i]) - m);
          }
          const Acc mean_g = sum / Acc(h), mean_gx = dot * r / Acc(h);
          for (int64_t i = 0; i < h; ++i) {
            const Acc xhat = (Acc(in[i]) - m) * r;
            dw[i] += Acc(d[i]) * xhat;
            dbias[i] += Acc(d[i]);
            const Acc g = Acc(d[i]) * (Acc(weight[i]) + shift);
            const Acc value = r * (g - mean_g - xhat * mean_gx);
            out[i] = T(keep ? Acc(out[i]) + value : value);
          }
        }
      }
    });
    add_blocks<Acc>(workspace.rows(0, 1).reshape({blocks, h}), sinks.dw);
    if (sinks.dbias.tensor.defined())
      add_blocks<Acc>(workspace.rows(1, 1).reshape({blocks, h}), sinks.dbias);
  });
}

}  // namespace phx::kernels::cpu
