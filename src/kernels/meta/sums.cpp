#include "phalanx/kernels/sums.h"

namespace phx::kernels::meta {

void column_sums(const Tensor& x, Tensor& workspace, const Sink& sums) {
  x.runtime().count(
      {.flops = x.numel(), .bytes = x.bytes() + 2 * workspace.bytes() + 2 * sums.tensor.bytes()});
}

void sum_all(const Tensor& x, Term term, Tensor& workspace, const Sink&) {
  x.runtime().count({.flops = x.numel() * (term == Term::square ? 2 : 1),
                     .bytes = x.bytes() + 2 * workspace.bytes()});
}

}  // namespace phx::kernels::meta
