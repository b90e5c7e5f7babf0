// norm -> fc1 -> activation -> fc2. Gated activations take fc1's output as [gate | up].
#pragma once

#include "phalanx/transformer/layer_part.h"
#include "phalanx/transformer/normed_linear.h"

namespace phx {

// fc2's input: [.., f], gated: [.., 2f] -> [.., f]
Tensor mlp_activation(const TransformerConfig& config, const Tensor& hidden);

class Mlp : public LayerPart {
 public:
  explicit Mlp(const LayerContext& layer);

  Tensor add_to(const Tensor& residual, const Tensor& x, const LayerCall& call) override;
  bool takes_context_parallel() const override { return true; }
  bool may_leave_out_result() const override { return true; }

 private:
  const TransformerConfig& config_;
  std::string dropout_site_;
  NormedLinear fc1_;
  BranchLinear fc2_;
};

}  // namespace phx
