// A layer of experts in place of the MLP:
//   norm -> router -> dispatch -> experts -> combine, beside it the shared expert -> residual
// Names: "pre_mlp_layernorm", "mlp.router", "mlp.experts", "mlp.shared_experts".
#pragma once

#include <optional>

#include "phalanx/nn/norm.h"
#include "phalanx/ops/expert_rows.h"
#include "phalanx/parallel/expert/dispatch.h"
#include "phalanx/parallel/tensor/layers.h"
#include "phalanx/transformer/layer_part.h"

namespace phx {

// The experts that a rank has. Their matrices lie one below the other, so that one grouped product
// serves all of them; globally (name, checkpoint, random numbers) they are one matrix of all
// experts' rows.
class Experts : public Module {
 public:
  Experts(const TransformerConfig& config, const ExpertParallel& ranks);
  // [r, h] -> [r, h], a summand over the experts' tensor-parallel ranks. `remake`: what fc2 reads
  // is not kept.
  Tensor forward(const ExpertInput& input, bool remake);

 private:
  ExpertActivation activation_;
  Parameter fc1_;  // [local * f, h], gated: local * 2f, all f divided by the experts' tp
  Parameter fc2_;  // [local * h, f]
};

// The MLP that every token goes through as well.
class SharedExpert : public Module {
 public:
  SharedExpert(const TransformerConfig& config, const TensorParallel& tp);
  Tensor forward(const Tensor& x, bool remake);  // [s/tp, b, h] -> [s/tp, b, h]

 private:
  const TransformerConfig& config_;
  ColumnLinear fc1_;
  RowLinear fc2_;
  std::optional<Parameter> gate_;  // [1, h]
};

class MoeLayer : public LayerPart {
 public:
  explicit MoeLayer(const LayerContext& layer);
  Tensor add_to(const Tensor& residual, const Tensor& x, const LayerCall& call) override;
  bool takes_context_parallel() const override { return true; }
  void end_step(const StepEnd& step) override;

 private:
  class Group : public Module {
   public:
    using Module::add_buffer;
    using Module::add_child;
    using Module::add_parameter;
  };
  Routing choose(const Tensor& tokens, const Tensor& x, const ForwardContext& context);
  Routing by_router(const Tensor& logits, int64_t samples, const ForwardContext& context);
  kernels::RouterTally tally_in(const Tensor& all) const;
  Tensor routed(const Tensor& normed, const LayerCall& call);  // [s/tp, b, h] -> the same

  const TransformerConfig& config_;
  TensorParallel tp_;
  ExpertParallel ranks_;
  int64_t layer_;
  std::string dropout_site_;
  NormModule norm_;
  Group mlp_, router_;
  Parameter router_weight_;  // [e, h]
  // [e] acc, buffers: added to the scores for the choice; choices of the last step's whole batch.
  std::optional<Parameter> bias_, loads_;
  Experts experts_;
  std::optional<SharedExpert> shared_;
};

}  // namespace phx
