#include "phalanx/kernels/random_fill.h"

namespace phx::kernels {

namespace {

int64_t columns(const Tensor& x) { return x.rank() == 0 ? 1 : x.dim(-1); }

}  // namespace

FillBox whole_box(const Tensor& x) {
  const int64_t cols = columns(x);
  return {.rows = cols == 0 ? 0 : x.numel() / cols, .cols = cols};
}

void check_box(const Tensor& x, const FillBox& box) {
  const FillBox whole = whole_box(x);
  PHX_CHECK(box.row >= 0 && box.rows >= 0 && box.row + box.rows <= whole.rows && box.col >= 0 &&
                box.cols >= 0 && box.col + box.cols <= whole.cols,
            "fill: rows [", box.row, ", ", box.row + box.rows, ") and columns [", box.col, ", ",
            box.col + box.cols, ") are not inside of ", x.shape());
}

void fill_normal(Tensor& x, const FillBox& box, const NormalFill& fill) {
  check_box(x, box);
  PHX_DISPATCH(x.device(), fill_normal, x, box, fill);
}

void fill_constant(Tensor& x, const FillBox& box, double value) {
  check_box(x, box);
  PHX_DISPATCH(x.device(), fill_constant, x, box, value);
}

}  // namespace phx::kernels
