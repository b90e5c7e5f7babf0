#include "phalanx/kernels/rope.h"

namespace phx::kernels::meta {

void rope(Tensor& x, const Tensor& table, const RopeHeads& heads, RopePairs,
          const RopePositions& at, RopeDirection) {
  const int64_t rows = x.numel() / x.dim(-1), pairs = table.dim(2);
  const int64_t turned = rows * heads.groups * heads.n * 2 * pairs;
  const int64_t positions = at.positions.defined() ? at.positions.bytes() : 0;
  x.runtime().count({.flops = 3 * turned,
                     .bytes = 2 * turned * size_of(x.dtype()) + positions +
                              x.dim(0) * 2 * pairs * size_of(table.dtype())});
}

}  // namespace phx::kernels::meta
