#include "phalanx/kernels/wide_norm.h"

#include <cmath>

#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels::cpu {

namespace {

// The two normalised runs of columns, one after the other.
template <class T, class F>
void each_part(const WideParts& parts, const Tensor& wq, const Tensor& wk, F&& f) {
  f(0, int64_t{0}, parts.q, parts.all_q, wq.data<T>());
  f(1, parts.q, parts.k, parts.all_k, wk.data<T>());
}

template <class Acc>
Acc rstd_of(Acc sum, int64_t channels, double eps) {
  return Acc(1) / std::sqrt(sum / Acc(channels) + Acc(eps));
}

}  // namespace

void wide_norm_sums(const Tensor& x, const WideParts& parts, Tensor& sums) {
  const int64_t width = x.dim(-1);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    for_rows(x, x.numel() / width, width, [&](int64_t row) {
      const T* in = x.data<T>() + row * width;
      Acc* out = sums.data<Acc>() + 2 * row;
      for (const int64_t count : {parts.q, parts.k}) {
        Acc sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < count; ++i) sum += Acc(in[i]) * Acc(in[i]);
        *out++ = sum;
        in += count;
      }
    });
  });
}

void wide_norm(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& sums,
               const WideParts& parts, const NormOptions& options, Tensor& y) {
  const int64_t width = x.dim(-1), normed = parts.q + parts.k;
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc shift = options.zero_centred ? 1 : 0;
    for_rows(x, x.numel() / width, width, [&](int64_t row) {
      const T* in = x.data<T>() + row * width;
      T* out = y.data<T>() + row * width;
      each_part<T>(parts, wq, wk,
                   [&](int part, int64_t first, int64_t count, int64_t all, const T* w) {
                     const Acc r = rstd_of(sums.data<Acc>()[2 * row + part], all, options.eps);
                     for (int64_t i = 0; i < count; ++i)
                       out[first + i] = T(Acc(in[first + i]) * r * (Acc(w[i]) + shift));
                   });
      std::copy(in + normed, in + width, out + normed);
    });
  });
}

void wide_norm_dots(const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& dy,
                    const WideParts& parts, const NormOptions& options, Tensor& dots) {
  const int64_t width = x.dim(-1);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc shift = options.zero_centred ? 1 : 0;
    for_rows(x, x.numel() / width, width, [&](int64_t row) {
      const T* in = x.data<T>() + row * width;
      const T* g = dy.data<T>() + row * width;
      each_part<T>(parts, wq, wk, [&](int part, int64_t first, int64_t count, int64_t, const T* w) {
        Acc dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < count; ++i)
          dot += Acc(g[first + i]) * (Acc(w[i]) + shift) * Acc(in[first + i]);
        dots.data<Acc>()[2 * row + part] = dot;
      });
    });
  });
}

// As rms_norm_backward, with the row's sums given.
void wide_norm_backward(const Tensor& x, const Tensor& wq, const Tensor& wk,
                        const WideSums& over_ranks, const Tensor& dy, const WideParts& parts,
                        const NormOptions& options, Tensor& workspace, Tensor& dx, const Sink& dwq,
                        const Sink& dwk) {
  const int64_t width = x.dim(-1), normed = parts.q + parts.k;
  const int64_t rows = x.numel() / width, blocks = workspace.dim(0);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc shift = options.zero_centred ? 1 : 0;
    x.device().threads().parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        Acc* dw = workspace.data<Acc>() + block * normed;
        std::fill(dw, dw + normed, Acc(0));
        const RowRange range = row_block(block, blocks, rows);
        for (int64_t row = range.begin; row < range.end; ++row) {
          const T* in = x.data<T>() + row * width;
          const T* g = dy.data<T>() + row * width;
          T* out = dx.data<T>() + row * width;
          each_part<T>(parts, wq, wk,
                       [&](int part, int64_t first, int64_t count, int64_t all, const T* w) {
                         const int64_t at = 2 * row + part;
                         const Acc r = rstd_of(over_ranks.sums.data<Acc>()[at], all, options.eps);
                         const Acc mean = over_ranks.dots.data<Acc>()[at] * r / Acc(all);
                         for (int64_t i = first; i < first + count; ++i) {
                           const Acc xhat = Acc(in[i]) * r;
                           dw[i] += Acc(g[i]) * xhat;
                           out[i] = T(r * (Acc(g[i]) * (Acc(w[i - first]) + shift) - xhat * mean));
                         }
                       });
          std::copy(g + normed, g + width, out + normed);
        }
      }
    });
    add_blocks<Acc>(workspace, dwq, /*column=*/0);
    add_blocks<Acc>(workspace, dwk, /*column=*/parts.q);
  });
}

}  // namespace phx::kernels::cpu
