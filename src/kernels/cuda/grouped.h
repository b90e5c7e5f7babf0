// The two versions of the grouped products (kernels/expert_rows.h). The one for Hopper takes 16-bit
// operands; the plain one takes everything, and is what the other is tested against.
#pragma once

#include "phalanx/kernels/expert_rows.h"

namespace phx::kernels::cuda {

// False, and nothing is done, if the GPU, the types, the shapes or the addresses are not for it.
bool hopper_grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                           const Sink& c);
bool hopper_grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                   const Sink& dw);

void plain_grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                          const Sink& c);
void plain_grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                  const Sink& dw);

}  // namespace phx::kernels::cuda
