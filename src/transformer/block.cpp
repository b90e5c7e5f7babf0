#include "transformer/block.h"

#include <algorithm>

#include "core/segment.h"

namespace phx {

TransformerLayer::TransformerLayer(const TransformerConfig& config, int64_t layer)
    : self_attention_(config, layer), mlp_(config, layer) {
  add_child("self_attention", self_attention_);
  add_child("mlp", mlp_);
}

Tensor TransformerLayer::forward(const Tensor& x, const RopeTables& rope,
                                 const ForwardContext& context,
                                 const RecomputePolicy& policy) {                     // [s, b, h]
  const Tensor y = self_attention_.forward(x, rope, context, policy.core_attention);  // [s, b, h]
  if (!policy.mlp) return mlp_.forward(y, context);
  return recompute(std::span(&y, 1), [this, context](std::span<const Tensor> in) {
    return std::vector<Tensor>{mlp_.forward(in[0], context)};
  })[0];
}

TransformerBlock::TransformerBlock(const TransformerConfig& config, const RecomputePolicy& policy)
    : policy_(policy), final_norm_(norm_spec(config, config.hidden_size)) {
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    layers_.push_back(std::make_unique<TransformerLayer>(config, layer));
    add_child("layers." + std::to_string(layer), *layers_.back());
  }
  add_child("final_layernorm", final_norm_);
}

Tensor TransformerBlock::run(const Tensor& x, size_t first, size_t count, const RopeTables& rope,
                             const ForwardContext& context) {
  Tensor y = x;
  for (size_t i = first; i < first + count; ++i) y = layers_[i]->forward(y, rope, context, policy_);
  return y;
}

Tensor TransformerBlock::forward(const Tensor& x, const RopeTables& rope,
                                 const ForwardContext& context) {
  const size_t total = layers_.size();
  const bool uniform = policy_.layers == RecomputePolicy::Layers::uniform;
  const size_t recomputed = policy_.layers == RecomputePolicy::Layers::none ? 0
                            : uniform                                       ? total
                                      : std::min(total, size_t(policy_.num_layers));
  const size_t unit = uniform ? size_t(policy_.num_layers) : 1;
  Tensor y = x;
  for (size_t first = 0; first < recomputed; first += unit) {
    const size_t count = std::min(unit, recomputed - first);
    y = recompute(std::span(&y, 1),
                  [this, first, count, &rope, context](std::span<const Tensor> in) {
                    return std::vector<Tensor>{run(in[0], first, count, rope, context)};
                  })[0];
  }
  return final_norm_.forward(run(y, recomputed, total - recomputed, rope, context));
}

}  // namespace phx
