// norm -> fc1 -> activation -> fc2. Gated activations take fc1's output as [gate | up].
#pragma once

#include "transformer/normed_linear.h"

namespace phx {

class Mlp : public Module {
 public:
  Mlp(const TransformerConfig& config, int64_t layer);

  Tensor forward(const Tensor& x,
                 const ForwardContext& context);  // [s, b, h] -> [s, b, h], residual added

 private:
  Tensor activate(const Tensor& hidden) const;  // [s, b, f], gated: [s, b, 2f] -> [s, b, f]

  const TransformerConfig& config_;
  std::string dropout_site_;
  NormedLinear fc1_;
  BranchLinear fc2_;
};

}  // namespace phx
