// The second half of sums over rows: partial sums of row blocks (kernels/row_blocks.h), added up in
// a fixed order.
#pragma once

#include "phalanx/core/autograd.h"

namespace phx::kernels::cuda {

// sink [h] = beta * sink + sum over blocks of partial [blocks, h] (f32).
void add_row_blocks(const Tensor& partial, const Sink& sink);

}  // namespace phx::kernels::cuda
