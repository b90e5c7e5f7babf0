#include "phalanx/kernels/rope.h"

namespace phx::kernels {

void rope(Tensor& x, const Tensor& table, const RopeHeads& heads, RopePairs pairs,
          const RopePositions& at, RopeDirection direction) {
  PHX_DISPATCH(x.device(), rope, x, table, heads, pairs, at, direction);
}

}  // namespace phx::kernels
