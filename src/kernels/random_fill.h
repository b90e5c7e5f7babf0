// Initial weights as a function of global indices: element (row, col) of the *global* matrix gets
// std * normal from key (seed, site, 0), counter (row's low and high 32 bits, col / 4, 0), word
// col % 4. A rank fills its boxes of a parameter without knowing anybody else's, and every layout
// and device gets the same bits (the product is made in f32 and rounded once to the tensor's type).
#pragma once

#include <cstdint>

#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

// A box inside of a local tensor, which is seen as [numel / last, last] (a vector as [1, n]), and
// where that box begins in the global matrix.
struct FillBox {
  int64_t row = 0, rows = 0;  // local
  int64_t col = 0, cols = 0;
  int64_t global_row = 0, global_col = 0;
};
// The whole of a tensor that is not cut.
FillBox whole_box(const Tensor& x);

struct NormalFill {
  uint64_t seed = 0;
  uint64_t site = 0;  // site_of(parameter name)
  double std = 1.0;
};

PHX_KERNEL(void, fill_normal, (Tensor & x, const FillBox& box, const NormalFill& fill))
PHX_KERNEL(void, fill_constant, (Tensor & x, const FillBox& box, double value))

// Refuses a box that is not inside of x.
void check_box(const Tensor& x, const FillBox& box);

}  // namespace phx::kernels
