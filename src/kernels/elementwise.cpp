#include "phalanx/kernels/elementwise.h"

namespace phx::kernels {

void cast(const Tensor& x, Tensor& y) {
  PHX_CHECK(x.numel() == y.numel(), "cast: x is ", x.shape(), " and y is ", y.shape());
  PHX_DISPATCH(x.device(), cast, x, y);
}

void transpose(const Tensor& x, Tensor& y) {
  PHX_CHECK(x.rank() >= 2 && y.rank() == x.rank() && y.dim(0) == x.dim(1) && y.dim(1) == x.dim(0) &&
                x.numel() == y.numel() && x.dtype() == y.dtype(),
            "transpose: y should be x ", x.shape(), " of ", x.dtype(),
            " with its first two dimensions exchanged, but it is ", y.shape(), " of ", y.dtype());
  if (x.numel() == 0) return;
  PHX_DISPATCH(x.device(), transpose, x, y);
}

void add(const Tensor& a, const Tensor& b, Tensor& y) {
  PHX_CHECK(a.shape() == b.shape() && a.dtype() == b.dtype() && y.numel() == a.numel() &&
                y.dtype() == a.dtype(),
            "add: a is ", a.shape(), " of ", a.dtype(), ", b is ", b.shape(), " of ", b.dtype(),
            " and y is ", y.shape(), " of ", y.dtype(), "; they should be alike");
  PHX_DISPATCH(a.device(), add, a, b, y);
}

void scale(const Tensor& x, double factor, const Sink& y) {
  PHX_CHECK(x.numel() == y.tensor.numel(), "scale: x is ", x.shape(), " and y is ",
            y.tensor.shape());
  PHX_DISPATCH(x.device(), scale, x, factor, y);
}

void fill(Tensor& y, double value) { PHX_DISPATCH(y.device(), fill, y, value); }

}  // namespace phx::kernels
