// Sums over rows in a fixed order: rows are cut into blocks whose number depends on the shape and
// the device kind alone (never on threads), each block adds up its rows, then the blocks are added
// in order.
#pragma once

#include <algorithm>

#include "phalanx/base/math.h"
#include "phalanx/core/runtime.h"

namespace phx::kernels {

inline int64_t num_row_blocks(int64_t rows, DeviceKind target) {
  // cpu: enough pieces for a few threads; cuda: four blocks for each of an H200's 132
  // multiprocessors.
  const int64_t most = target == DeviceKind::cuda ? 528 : 16;
  return std::clamp<int64_t>(ceil_div(rows, 16), 1, most);
}

struct RowRange {
  int64_t begin, end;
};

inline RowRange row_block(int64_t block, int64_t blocks, int64_t rows) {
  return {rows * block / blocks, rows * (block + 1) / blocks};
}

}  // namespace phx::kernels
