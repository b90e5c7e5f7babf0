#include "phalanx/kernels/dropout.h"

#include <algorithm>

#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels::cpu {

namespace {

constexpr int64_t kSpan = 256;  // channels whose factors are drawn at once, a multiple of four

// factors[i] = scale or 0 for channels [begin, begin + count) of a row; begin is a multiple of
// four.
template <class Acc>
void draw_factors(const DropoutMask& mask, int64_t row, int64_t begin, int64_t count, Acc scale,
                  Acc* factors) {
  if (mask.p == 0.f) {
    std::fill(factors, factors + count, scale);
    return;
  }
  for (int64_t i = 0; i < count; i += 4) {
    const Philox4 words = mask.words(uint32_t(row), uint32_t((begin + i) / 4));
    for (int64_t j = 0; j < 4; ++j)  // past the row's end: drawn but never read
      factors[i + j] = mask.keeps(words.x[j]) ? scale : Acc(0);
  }
}

// f(i, factor) for each channel of a row.
template <class Acc, class F>
void for_channels(const DropoutMask& mask, int64_t row, int64_t h, Acc scale, F&& f) {
  Acc factors[kSpan];
  for (int64_t begin = 0; begin < h; begin += kSpan) {
    const int64_t count = std::min(kSpan, h - begin);
    draw_factors(mask, row, begin, count, scale, factors);
    for (int64_t i = 0; i < count; ++i) f(begin + i, factors[i]);
  }
}

}  // namespace

void dropout(const Tensor& x, double p, const RandomSite& site, const Sink& y) {
  const int64_t h = x.dim(-1), rows = x.numel() / h;
  const DropoutMask mask = dropout_mask(x, p, site);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc scale = Acc(dropout_scale(p));
    const bool keep = y.beta != 0.f;
    for_rows(x, rows, h, [&](int64_t row) {
      const T* in = x.data<T>() + row * h;
      T* out = y.tensor.data<T>() + row * h;
      for_channels(mask, row, h, scale, [&](int64_t i, Acc factor) {
        // Dropped elements are 0 even where x is inf or nan.
        const Acc value = factor != Acc(0) ? Acc(in[i]) * factor : Acc(0);
        out[i] = T(keep ? Acc(out[i]) + value : value);
      });
    });
  });
}

void bias_dropout_add(const Tensor& x, const Tensor& y, const Tensor& bias, double p,
                      const RandomSite& site, Tensor& out) {
  const int64_t h = x.dim(-1), rows = x.numel() / h;
  const DropoutMask mask = dropout_mask(x, p, site);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc scale = Acc(dropout_scale(p));
    const T* offset = bias.defined() ? bias.data<T>() : nullptr;
    for_rows(x, rows, h, [&](int64_t row) {
      const T *residual = x.data<T>() + row * h, *in = y.data<T>() + row * h;
      T* sum = out.data<T>() + row * h;
      for_channels(mask, row, h, scale, [&](int64_t i, Acc factor) {
        const Acc biased = offset ? Acc(in[i]) + Acc(offset[i]) : Acc(in[i]);
        sum[i] = T(Acc(residual[i]) + (factor != Acc(0) ? biased * factor : Acc(0)));
      });
    });
  });
}

void dropout_bias_backward(const Tensor& dout, double p, const RandomSite& site, Tensor& workspace,
                           const Sink& dbias) {
  const int64_t h = dout.dim(-1), rows = dout.numel() / h, blocks = workspace.dim(0);
  const DropoutMask mask = dropout_mask(dout, p, site);
  for_float_dtype(dout.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc scale = Acc(dropout_scale(p));
    dout.device().threads().parallel_for(blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        Acc* sums = workspace.data<Acc>() + block * h;
        std::fill(sums, sums + h, Acc(0));
        const RowRange range = row_block(block, blocks, rows);
        for (int64_t row = range.begin; row < range.end; ++row) {
          const T* d = dout.data<T>() + row * h;
          for_channels(mask, row, h, scale, [&](int64_t i, Acc factor) {
            sums[i] += factor != Acc(0) ? Acc(d[i]) * factor : Acc(0);
          });
        }
      }
    });
    add_blocks<Acc>(workspace, dbias);
  });
}

}  // namespace phx::kernels::cpu
