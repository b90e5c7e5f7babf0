// Workspace of the stable sorts that some kernels need on cuda: sized by the number of items alone,
// so that a plan on meta counts the same bytes.
#pragma once

#include "phalanx/base/math.h"

namespace phx::kernels {

// Two arrays of keys, two of u32 values, then what the sort itself needs, which depends on the GPU;
// the sort checks that it is enough.
constexpr int64_t sort_scratch_bytes(int64_t items) { return 16 * items + (int64_t{1} << 20); }
constexpr int64_t stable_sort_bytes(int64_t items, int64_t key_bytes) {
  return 2 * round_up(items * key_bytes, 256) + 2 * round_up(items * 4, 256) +
         sort_scratch_bytes(items);
}

}  // namespace phx::kernels
