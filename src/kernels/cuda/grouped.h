// The two versions of the grouped products (kernels/expert_rows.h). The one for Hopper takes 16-bit
// operands; the plain one takes everything, and is what the other is tested against.
#pragma once

#include "phalanx/kernels/expert_rows.h"

namespace phx::kernels::cuda {

// How the Hopper kernels walk; none of it changes the result.
struct HopperTuning {
  int cluster = 1;  // 2: two blocks take neighbouring tiles of rows and share the columns' operand
  int lead = 2;  // steps that one warpgroup is ahead of the other: it stores while the other works
  int block_m = 16;  // tiles of rows that are walked together, so that operands are found in L2
};

// False, and nothing is done, if the GPU, the types, the shapes or the addresses are not for it.
bool hopper_grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                           const Sink& c, const HopperTuning& tuning = {});
bool hopper_grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                   const Sink& dw, const HopperTuning& tuning = {});

void plain_grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                          const Sink& c);
void plain_grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                  const Sink& dw);

}  // namespace phx::kernels::cuda
