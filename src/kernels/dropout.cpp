#include "phalanx/kernels/dropout.h"

#include "phalanx/base/math.h"
#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels {

DropoutMask dropout_mask(const Tensor& x, double p, const RandomSite& site) {
  return {.key = philox_key(site.seed, site.site, uint64_t(site.step)),
          .b = uint32_t(narrow<int>(x.rank() == 3 ? x.dim(1) : 1)),
          .tokens = site.samples.tokens > 0 ? uint32_t(narrow<int>(site.samples.tokens))
                                            : std::numeric_limits<uint32_t>::max(),
          .first_sample = site.samples.first,
          .sample_stride = site.samples.stride,
          .first_position = site.first_position,
          .split = site.split,
          .position_after_split = site.position_after_split,
          .p = float(p)};
}

void dropout(const Tensor& x, double p, const RandomSite& site, const Sink& y) {
  PHX_DISPATCH(x.device(), dropout, x, p, site, y);
}

void bias_dropout_add(const Tensor& x, const Tensor& y, const Tensor& bias, double p,
                      const RandomSite& site, Tensor& out) {
  PHX_DISPATCH(x.device(), bias_dropout_add, x, y, bias, p, site, out);
}

void dropout_bias_backward(const Tensor& dout, double p, const RandomSite& site, Tensor& workspace,
                           const Sink& dbias) {
  PHX_DISPATCH(dout.device(), dropout_bias_backward, dout, p, site, workspace, dbias);
}

void dropout_bias_backward(const Tensor& dout, double p, const RandomSite& site,
                           const Sink& dbias) {
  const int64_t h = dout.dim(-1);
  const Shape shape{num_row_blocks(dout.numel() / h, dout.device().target()), h};
  Tensor workspace = empty(shape, acc_dtype(dout.dtype()), dout.device(), Purpose::workspace);
  dropout_bias_backward(dout, p, site, workspace, dbias);
}

}  // namespace phx::kernels
