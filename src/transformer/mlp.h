// norm -> fc1 -> activation -> fc2. Gated activations take fc1's output as [gate | up].
#pragma once

#include "transformer/layer_context.h"
#include "transformer/normed_linear.h"
#include "transformer/recompute_policy.h"

namespace phx {

class Mlp : public Module {
 public:
  explicit Mlp(const LayerContext& layer);

  // [s/tp, b, h] -> [s/tp, b, h], the residual added
  Tensor forward(const Tensor& x, const ForwardContext& context, const RecomputePolicy& policy);

 private:
  Tensor activate(const Tensor& hidden) const;  // [s, b, f/tp], gated: 2f/tp -> [s, b, f/tp]

  const TransformerConfig& config_;
  std::string dropout_site_;
  NormedLinear fc1_;
  BranchLinear fc2_;
};

}  // namespace phx
