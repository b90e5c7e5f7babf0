#include "phalanx/transformer/block.h"

#include <algorithm>

#include "phalanx/core/layer_offload.h"
#include "phalanx/core/segment.h"
#include "phalanx/transformer/latent_attention.h"
#include "phalanx/transformer/mlp.h"
#include "phalanx/transformer/moe.h"
#include "phalanx/transformer/self_attention.h"

namespace phx {

std::vector<NamedPart> decoder_layer(const LayerContext& layer) {
  std::vector<NamedPart> parts;
  if (layer.config.latent.any())
    parts.push_back(
        {.name = "self_attention", .part = std::make_unique<LatentAttention>(layer), .path = ""});
  else
    parts.push_back({"self_attention", std::make_unique<SelfAttention>(layer)});
  if (layer.config.has_experts(layer.layer))
    parts.push_back({.name = "moe", .part = std::make_unique<MoeLayer>(layer), .path = ""});
  else
    parts.push_back({"mlp", std::make_unique<Mlp>(layer)});
  return parts;
}

TransformerLayer::TransformerLayer(std::vector<NamedPart> parts) : parts_(std::move(parts)) {
  for (const NamedPart& named : parts_) add_child(named.path.value_or(named.name), *named.part);
}

Tensor TransformerLayer::forward(const Tensor& x, const LayerCall& call) {  // [s/tp, b, h]
  Tensor y = x;
  RecomputePolicy before_last = call.policy;
  before_last.output_unused = false;
  for (const NamedPart& named : parts_) {
    if (!call.policy.recomputes(named.name)) {
      const bool last = &named == &parts_.back() && named.part->may_leave_out_result();
      y = named.part->add_to(y, y, {call.rope, call.context, last ? call.policy : before_last});
      continue;
    }
    y = recompute(std::span(&y, 1),
                  [part = named.part.get(), &rope = call.rope, inside = call.policy.inside(),
                   context = call.context](std::span<const Tensor> in) {
                    RecomputePolicy policy = inside;
                    policy.output_unused =  // the second time
                        part->may_leave_out_result() && in[0].runtime().grad_enabled();
                    return std::vector<Tensor>{part->add_to(in[0], in[0], {rope, context, policy})};
                  })[0];
  }
  return y;
}

TransformerBlock::TransformerBlock(const TransformerConfig& config, const RecomputePolicy& policy,
                                   const LayerRange& range, const ModelRanks& ranks,
                                   const LayerParts& parts)
    : policy_(policy) {
  for (int64_t layer = range.first; layer < range.first + range.count; ++layer) {
    layers_.push_back(std::make_unique<TransformerLayer>(
        parts(LayerContext{.config = config, .ranks = ranks, .layer = layer})));
    add_child("layers." + std::to_string(layer), *layers_.back());
  }
  if (!range.final_norm) return;
  final_norm_.emplace(norm_spec(config, config.hidden_size, axes_in_sequence(ranks.tp)));
  add_child("final_layernorm", *final_norm_);
}

std::vector<std::string> TransformerBlock::part_names() const {
  std::vector<std::string> names;
  for (const auto& layer : layers_)
    for (const NamedPart& named : layer->parts())
      if (std::ranges::find(names, named.name) == names.end()) names.push_back(named.name);
  return names;
}

bool TransformerLayer::takes_context_parallel() const {
  return std::ranges::all_of(
      parts_, [](const NamedPart& named) { return named.part->takes_context_parallel(); });
}

bool TransformerBlock::takes_context_parallel() const {
  return std::ranges::all_of(layers_,
                             [](const auto& layer) { return layer->takes_context_parallel(); });
}

Tensor TransformerBlock::run(const Tensor& x, size_t first, size_t count, const RopeTables& rope,
                             const ForwardContext& context, const RecomputePolicy& policy) {
  Tensor y = x;
  RecomputePolicy before_last = policy;
  before_last.output_unused = false;
  for (size_t i = first; i < first + count; ++i)
    y = layers_[i]->forward(y, {rope, context, i + 1 == first + count ? policy : before_last});
  return y;
}

Tensor TransformerBlock::run_offloaded(Tensor x, const RopeTables& rope,
                                       const ForwardContext& context) {
  LayerOffload offload(x.runtime());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = [&](const Tensor& in) {
      return layers_[i]->forward(in, {rope, context, policy_});
    };
    x = int64_t(i) < policy_.offloaded_layers ? offload.run(std::move(x), layer)
                                              : offload.run_kept(std::move(x), layer);
  }
  offload.finish();
  return x;
}

Tensor TransformerBlock::forward(const Tensor& x, const RopeTables& rope,
                                 const ForwardContext& context) {
  const size_t total = layers_.size();
  if (policy_.offloaded_layers > 0) {
    const Tensor y = run_offloaded(x, rope, context);
    return final_norm_ ? final_norm_->forward(y) : y;
  }
  const bool uniform = policy_.layers == RecomputePolicy::Layers::uniform;
  const size_t recomputed = policy_.layers == RecomputePolicy::Layers::none ? 0
                            : uniform                                       ? total
                                      : std::min(total, size_t(policy_.num_layers));
  const size_t unit = uniform ? size_t(policy_.num_layers) : 1;
  Tensor y = x;
  for (size_t first = 0; first < recomputed; first += unit) {
    const size_t count = std::min(unit, recomputed - first);
    ForwardContext of_unit = context;
    if (policy_.keep_attention && x.runtime().grad_enabled())
      of_unit.kept_attention = std::make_shared<KeptAttention>();
    y = recompute(std::span(&y, 1),
                  [this, first, count, &rope, of_unit](std::span<const Tensor> in) {
                    RecomputePolicy policy = policy_.inside();
                    policy.output_unused = in[0].runtime().grad_enabled();  // the second time
                    return std::vector<Tensor>{run(in[0], first, count, rope, of_unit, policy)};
                  })[0];
  }
  y = run(y, recomputed, total - recomputed, rope, context, policy_);
  return final_norm_ ? final_norm_->forward(y) : y;
}

}  // namespace phx
