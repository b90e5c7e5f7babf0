// The cosines and sines of every distinct kind of layer, made once.
#pragma once

#include <vector>

#include "phalanx/ops/rope.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

class RopeTables {
 public:
  // Positions [0, length), for rotated heads of which a rank has `heads`: query and key heads.
  RopeTables(const TransformerConfig& config, int64_t heads, int64_t length, DType dtype,
             Device device);

  // Rotates the q and k heads of qkv [s, b, (n + 2g) d] in place; an error if somebody else holds
  // qkv.
  Tensor apply(Tensor&& qkv, int64_t layer, const RopePositions& at) const;
  // Some heads of any tensor: in place, or in new memory.
  Tensor turn(Tensor&& x, int64_t layer, const RopeHeads& heads, const RopePositions& at) const;
  Tensor turned(const Tensor& x, int64_t layer, const RopeHeads& heads,
                const RopePositions& at) const;

 private:
  std::vector<Tensor>
      table_of_layer_;  // undefined: the layer has no rotary positions; layers share tables
  RopeHeads heads_;
  RopePairs pairs_ = RopePairs::halves;
};

}  // namespace phx
