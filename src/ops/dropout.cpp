#include "phalanx/ops/dropout.h"

#include "phalanx/core/autograd.h"

namespace phx {

namespace {

void check(const char* op, const Tensor& x, double p) {
  PHX_CHECK(x.rank() == 2 || x.rank() == 3, op, ": x is ", x.shape(),
            ", but should be [s, b, h] or [t, h]");
  PHX_CHECK(p >= 0 && p < 1, op, ": p is ", p, ", but should be in [0, 1)");
}

}  // namespace

Tensor dropout(const Tensor& x, double p, const RandomSite& site) {  // [s, b, h] -> [s, b, h]
  check("dropout", x, p);
  if (p == 0) return x;
  Tensor y = empty_like(x);
  kernels::dropout(x, p, site, {y, 0.f});
  return with_backward(y, {x}, [p, site](const Tensor& dy, GradOut& grad) {
    kernels::dropout(dy, p, site, grad.add(0));  // dy: [s, b, h]
  });
}

Tensor bias_dropout_add(const Tensor& x, const Tensor& y, const Tensor& bias, double p,
                        const RandomSite& site) {  // [s, b, h], [s, b, h], [h] -> [s, b, h]
  check("bias_dropout_add", x, p);
  PHX_CHECK(x.shape() == y.shape(), "bias_dropout_add: x is ", x.shape(), ", but y is ", y.shape());
  PHX_CHECK(!bias.defined() || bias.shape() == Shape({x.dim(-1)}), "bias_dropout_add: x is ",
            x.shape(), ", so the bias should be [", x.dim(-1), "], but it is ", bias.shape());
  Tensor out = empty_like(x);
  kernels::bias_dropout_add(x, y, bias, p, site, out);
  return with_backward(out, {x, y, bias}, [p, site](const Tensor& dout, GradOut& grad) {
    if (grad.wants(2)) kernels::dropout_bias_backward(dout, p, site, grad.add(2));
    if (p == 0)
      grad.pass(1, dout);
    else if (grad.wants(1))
      kernels::dropout(dout, p, site, grad.add(1));
    grad.pass(0, dout);  // dout: [s, b, h]
  });
}

}  // namespace phx
