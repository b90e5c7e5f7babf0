// Grouped queries with more tensor-parallel ranks than key groups. The `sharers` of a group have
// their own query heads and each an equal slice of the group's k and v rows, so no weight exists
// twice; what all of them need is put together after the projection.
#pragma once

#include "phalanx/comm/communicator.h"
#include "phalanx/core/tensor.h"

namespace phx {

// part [s, b, q + 2 d/k] with k sharers: own queries | slice of k | slice of v -> [s, b, q + 2 d]
Tensor gather_key_group(const Tensor& part, int64_t query_columns, int64_t head_dim,
                        Communicator& sharers);

}  // namespace phx
