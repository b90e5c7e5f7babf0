#include "phalanx/models/gpt/token_ahead.h"

#include "phalanx/core/segment.h"
#include "phalanx/ops/columns.h"
#include "phalanx/transformer/normed_linear.h"

namespace phx {

namespace {

NormSpec norm_of_stream(const TransformerConfig& config, const TensorParallel& tp) {
  return norm_spec(config, config.hidden_size, axes_in_sequence(tp));
}

ParameterSpec projection_spec(int64_t h, Init init, const TensorParallel& tp) {
  ParameterSpec spec = whole({h, 2 * h}, init);
  spec.axes = axes_in_sequence(tp);
  return spec;
}

}  // namespace

TokenAhead::Projection::Projection(int64_t h, Init init, const TensorParallel& tp)
    : weight_(projection_spec(h, init, tp)) {
  add_parameter("weight", weight_);
}

Tensor TokenAhead::Projection::forward(const Tensor& x) {
  return linear(x, weight_.acquire(), Tensor());
}

TokenAhead::TokenAhead(const TransformerConfig& config, int64_t ahead,
                       const RecomputePolicy& policy, const ModelRanks& ranks,
                       const LayerParts& parts)
    : policy_(policy),
      embedding_norm_(norm_of_stream(config, ranks.tp)),
      hidden_norm_(norm_of_stream(config, ranks.tp)),
      projection_(config.hidden_size, Init::normal(config.init_method_std), ranks.tp),
      layer_(parts(
          LayerContext{.config = config, .ranks = ranks, .layer = config.num_layers + ahead})),
      final_norm_(norm_of_stream(config, ranks.tp)) {
  add_child("enorm", embedding_norm_);
  add_child("hnorm", hidden_norm_);
  add_child("eh_proj", projection_);
  add_child("transformer_layer", layer_);
  add_child("final_layernorm", final_norm_);
}

Tensor TokenAhead::run(const Tensor& hidden, const Tensor& embedded, const LayerCall& call) {
  const Tensor joined =
      join_columns(embedding_norm_.forward(embedded), hidden_norm_.forward(hidden));
  const Tensor x = projection_.forward(joined);         // [s/tp, b, h]
  return final_norm_.forward(layer_.forward(x, call));  // [s/tp, b, h]
}

Tensor TokenAhead::forward(const Tensor& hidden, const Tensor& embedded, const RopeTables& rope,
                           const ForwardContext& context) {
  if (policy_.layers == RecomputePolicy::Layers::none)
    return run(hidden, embedded, {rope, context, policy_});
  const Tensor in[] = {hidden, embedded};
  ForwardContext of_layer = context;
  if (policy_.keep_attention && hidden.runtime().grad_enabled())
    of_layer.kept_attention = std::make_shared<KeptAttention>();
  return recompute(in, [this, &rope, of_layer](std::span<const Tensor> kept) {
    return std::vector<Tensor>{run(kept[0], kept[1], {rope, of_layer, policy_.inside()})};
  })[0];
}

}  // namespace phx
