#include "phalanx/transformer/mlp.h"

#include <cmath>

#include "phalanx/core/segment.h"
#include "phalanx/ops/activation.h"

namespace phx {

namespace {

std::vector<int64_t> fc1_parts(const TransformerConfig& config) {
  if (config.gated()) return {config.ffn_size(), config.ffn_size()};  // gate | up, each cut
  return {config.ffn_size()};
}

}  // namespace

Mlp::Mlp(const LayerContext& layer)
    : config_(layer.config),
      dropout_site_("decoder.layers." + std::to_string(layer.layer) + ".mlp.linear_fc2.dropout"),
      fc1_(norm_spec(config_, config_.hidden_size, axes_in_sequence(layer.ranks.tp)),
           config_.hidden_size, cut_rows(fc1_parts(config_), layer.ranks.tp),
           {.bias = config_.has_linear_bias(), .init = Init::normal(config_.init_method_std)},
           layer.ranks.tp),
      fc2_(config_.ffn_size(), config_.hidden_size,
           {.bias = config_.has_linear_bias(), .init = Init::normal(config_.residual_std())},
           layer.ranks.tp, post_norm_spec(config_, layer.ranks.tp)) {
  add_child("linear_fc1", fc1_);
  add_child("linear_fc2", fc2_);
}

Tensor mlp_activation(const TransformerConfig& config, const Tensor& hidden) {
  switch (config.activation()) {
    case MlpActivation::swiglu:
      return swiglu(hidden);
    case MlpActivation::geglu_tanh:
      return geglu(hidden);
    case MlpActivation::gelu:
      return phx::activate(hidden, Activation::gelu);
    case MlpActivation::gelu_tanh:
      return phx::activate(hidden, Activation::gelu_tanh);
    case MlpActivation::squared_relu:
      return phx::activate(hidden, Activation::relu_squared);
  }
  return {};
}

Tensor Mlp::add_to(const Tensor& residual, const Tensor& x,
                   const LayerCall& call) {  // [s/tp, b, h] both
  const BranchLinear::Drop drop{config_.hidden_dropout, dropout_site_};
  if (call.policy.mlp_pieces > 1 && x.dim(0) > 1) {
    const auto of_rows = [this](const Tensor& rows) {  // [rows, b, h]
      return fc2_.multiply(mlp_activation(config_, fc1_.forward(rows, /*remake_norm=*/false)));
    };
    const int64_t pieces = call.policy.mlp_pieces;
    const Tensor branch = call.policy.output_unused && !fc2_.keeps_branch()  // [s/tp, b, h]
                              ? recompute_rows_later(x, residual.shape(), pieces, of_rows)
                              : recompute_rows(x, pieces, of_rows);
    return fc2_.join(residual, branch, drop, call.context);
  }
  const Tensor before = fc1_.forward(x, call.policy.norms);  // [s, b, f/tp], gated: 2f/tp
  const Tensor active = mlp_activation(config_, before);     // [s, b, f/tp]
  Remake remake;
  if (call.policy.activation) {
    remake = [this, before = before.detach()] {
      GradMode off(before.runtime(), false);
      return mlp_activation(config_, before);
    };
  }
  return fc2_.add_to(residual, active, drop, call.context, remake);
}

}  // namespace phx
