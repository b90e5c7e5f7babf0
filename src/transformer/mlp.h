// norm -> fc1 -> activation -> fc2. Gated activations take fc1's output as [gate | up].
#pragma once

#include "phalanx/transformer/layer_part.h"
#include "phalanx/transformer/normed_linear.h"

namespace phx {

class Mlp : public LayerPart {
 public:
  explicit Mlp(const LayerContext& layer);

  Tensor add_to(const Tensor& residual, const Tensor& x, const LayerCall& call) override;

 private:
  Tensor activate(const Tensor& hidden) const;  // [s, b, f/tp], gated: 2f/tp -> [s, b, f/tp]

  const TransformerConfig& config_;
  std::string dropout_site_;
  NormedLinear fc1_;
  BranchLinear fc2_;
};

}  // namespace phx
