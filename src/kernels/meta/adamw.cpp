#include "phalanx/kernels/adamw.h"

namespace phx::kernels::meta {

void adamw(const Tensor& grad, const Tensor&, const AdamWOptions&, const AdamWBuffers& buffers) {
  const int64_t master = buffers.master.defined() ? buffers.master.bytes() : 0;
  grad.runtime().count({.flops = 16 * grad.numel(),
                        .bytes = grad.bytes() + 2 * (buffers.weight.bytes() + master +
                                                     buffers.m.bytes() + buffers.v.bytes())});
}

}  // namespace phx::kernels::meta
