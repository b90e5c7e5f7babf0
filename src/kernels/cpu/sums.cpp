#include "phalanx/kernels/sums.h"

#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels::cpu {

void column_sums(const Tensor& x, Tensor& workspace, const Sink& sums) {
  const int64_t n = x.dim(-1), rows = x.numel() / n, blocks = workspace.dim(0);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    x.device().threads().parallel_for(blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        Acc* to = workspace.data<Acc>() + block * n;
        std::fill(to, to + n, Acc(0));
        const RowRange range = row_block(block, blocks, rows);
        for (int64_t row = range.begin; row < range.end; ++row) {
          const T* from = x.data<T>() + row * n;
          for (int64_t j = 0; j < n; ++j) to[j] += Acc(from[j]);
        }
      }
    });
    add_blocks<Acc>(workspace, sums);
  });
}

namespace {

template <class T>
double block_sum(const T* x, int64_t n, Term term) {
  double total = 0;
  if (term == Term::square) {
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) total += double(x[i]) * double(x[i]);
  } else {
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) total += double(x[i]);
  }
  return total;
}

}  // namespace

void sum_all(const Tensor& x, Term term, Tensor& workspace, const Sink& total) {
  const int64_t blocks = workspace.numel();
  double* parts = workspace.data<double>();
  for_float_dtype(x.dtype(), [&]<class T>() {
    x.device().threads().parallel_for(blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        const RowRange range = row_block(block, blocks, x.numel());
        parts[block] = block_sum(x.data<T>() + range.begin, range.end - range.begin, term);
      }
    });
  });
  double sum = 0;
  for (int64_t block = 0; block < blocks; ++block) sum += parts[block];
  for_float_dtype(total.tensor.dtype(), [&]<class Y>() {
    Y* out = total.tensor.data<Y>();
    *out = Y(acc_t<Y>((total.beta != 0.f ? double(*out) : 0.0) + sum));
  });
}

}  // namespace phx::kernels::cpu
