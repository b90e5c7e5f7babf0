// The one reduction of the backends that move bytes.
#pragma once

#include <span>

#include "phalanx/comm/communicator.h"

namespace phx {

// out[i] = in[0][i] + in[1][i] + ... (or the largest of them), added in this order in acc_dtype
// (whole numbers in their own type) and rounded once. n elements each; `out` may be one of `in`.
void reduce_in_order(std::span<const void* const> in, void* out, int64_t n, DType dtype,
                     ReduceOp op, ThreadPool& threads);

}  // namespace phx
