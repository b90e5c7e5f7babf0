#include "transformer/mlp.h"

#include <cmath>

#include "ops/activation.h"

namespace phx {

Mlp::Mlp(const TransformerConfig& config, int64_t layer)
    : config_(config),
      dropout_site_("decoder.layers." + std::to_string(layer) + ".mlp.linear_fc2.dropout"),
      fc1_(norm_spec(config, config.hidden_size), config.hidden_size,
           (config.gated() ? 2 : 1) * config.ffn_size(),
           {.bias = config.has_linear_bias(), .init = Init::normal(config.init_method_std)}),
      fc2_(config.ffn_size(), config.hidden_size,
           {.bias = config.has_linear_bias(),
            .init =
                Init::normal(config.init_method_std / std::sqrt(2.0 * double(config.num_layers)))},
           config.post_layernorms ? std::optional(norm_spec(config, config.hidden_size))
                                  : std::nullopt) {
  add_child("linear_fc1", fc1_);
  add_child("linear_fc2", fc2_);
}

Tensor Mlp::activate(const Tensor& hidden) const {
  switch (config_.activation()) {
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

Tensor Mlp::forward(const Tensor& x, const ForwardContext& context) {  // [s, b, h]
  const Tensor hidden = fc1_.forward(x);   // [s, b, f], gated: [s, b, 2f]
  const Tensor active = activate(hidden);  // [s, b, f]
  return fc2_.add_to(x, active, config_.hidden_dropout, dropout_site_, context);
}

}  // namespace phx
