#include "phalanx/kernels/random_fill.h"

#include <algorithm>

#include "phalanx/core/philox.h"
#include "phalanx/kernels/cpu/loops.h"

namespace phx::kernels::cpu {

void fill_normal(Tensor& x, const FillBox& box, const NormalFill& fill) {
  const uint64_t key = philox_key(fill.seed, fill.site, 0);
  const float std = float(fill.std);
  for_float_dtype(x.dtype(), [&]<class T>() {
    for_rows(x, box.rows, box.cols, [&](int64_t r) {
      T* out = x.data<T>() + (box.row + r) * x.dim(-1) + box.col;
      const auto row = uint64_t(box.global_row + r);
      const int64_t begin = box.global_col, end = begin + box.cols;
      for (int64_t col = begin - begin % 4; col < end; col += 4) {
        const Philox4 words =
            philox4x32(key, uint32_t(row), uint32_t(row >> 32), uint32_t(col / 4), 0);
        for (int64_t j = std::max(col, begin); j < std::min(col + 4, end); ++j)
          out[j - begin] = T(phx::detail::mul(normal_from(words.x[j % 4]), std));
      }
    });
  });
}

void fill_constant(Tensor& x, const FillBox& box, double value) {
  for_float_dtype(x.dtype(), [&]<class T>() {
    for_rows(x, box.rows, box.cols, [&](int64_t r) {
      T* out = x.data<T>() + (box.row + r) * x.dim(-1) + box.col;
      std::fill(out, out + box.cols, T(acc_t<T>(value)));
    });
  });
}

}  // namespace phx::kernels::cpu
