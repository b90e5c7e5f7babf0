#include "phalanx/kernels/sgd.h"

namespace phx::kernels::meta {

void sgd(const Tensor& grad, const Tensor&, const SgdOptions&, const SgdBuffers& buffers) {
  const int64_t master = buffers.master.defined() ? buffers.master.bytes() : 0;
  grad.runtime().count(
      {.flops = 7 * grad.numel(),
       .bytes = grad.bytes() + 2 * (buffers.weight.bytes() + master + buffers.momentum.bytes())});
}

}  // namespace phx::kernels::meta
