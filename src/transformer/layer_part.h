// What a layer is made of: parts that each add a branch to the residual stream, in order. Which
// parts a layer has is a function of its index: experts in every second layer, or a part of a
// user's own, change nothing in the block.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/nn/module.h"
#include "phalanx/transformer/forward_context.h"
#include "phalanx/transformer/layer_context.h"
#include "phalanx/transformer/recompute_policy.h"
#include "phalanx/transformer/rope_tables.h"

namespace phx {

struct LayerCall {
  const RopeTables& rope;  // the model's: lives as long as the parts do
  const ForwardContext& context;
  const RecomputePolicy& policy;
};

class LayerPart : public Module {
 public:
  // residual + branch(x): [s/tp, b, h], [s/tp, b, h] -> [s/tp, b, h]. In most layers the two are
  // the same tensor; branches side by side take the same x and add to each other's result.
  virtual Tensor add_to(const Tensor& residual, const Tensor& x, const LayerCall& call) = 0;
  // Whether it may leave out what only its result needs if RecomputePolicy::output_unused says so.
  // A part that hands its call on to others must not: they would not know who reads them.
  virtual bool may_leave_out_result() const { return false; }
  // Whether it is right when a rank has only some rows of each sequence (ForwardContext::cut). A
  // part that works on one token at a time returns true and needs nothing else.
  virtual bool takes_context_parallel() const { return false; }
};

struct NamedPart {
  std::string name;  // for --recompute-modules; in the checkpoint too, unless `path` is given
  std::unique_ptr<LayerPart> part;
  // Its name in the checkpoint; empty: the part's parameters stand directly under the layer.
  std::optional<std::string> path = {};
};
using LayerParts = std::function<std::vector<NamedPart>(const LayerContext& layer)>;

// "self_attention", then "mlp", or "moe" where the layer has experts.
std::vector<NamedPart> decoder_layer(const LayerContext& layer);

}  // namespace phx
