#include "phalanx/transformer/mlp.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/core/segment.h"
#include "phalanx/nn/parameter_store.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

using Values = std::vector<double>;

TransformerConfig tiny() {
  TransformerConfig config;
  config.num_layers = 4;
  config.hidden_size = 16;
  config.num_attention_heads = 2;
  config.ffn_hidden_size = 20;
  config.seq_length = config.max_position_embeddings = 6;
  config.vocab_size = 8;
  config.position_embedding_type = PositionEmbedding::rope;
  config.attention_dropout = config.hidden_dropout = 0;
  config.init_method_std = 0.3;
  return config;
}

Tensor row(const Values& values) {
  return from_values(values, {1, int64_t(values.size())}, DType::f64, test_device());
}

TEST(Mlp, GatedActivationsTakeTheGateFirst) {
  TransformerConfig config = tiny();
  config.swiglu = true;
  const double silu = 2 / (1 + std::exp(-2.0));
  EXPECT_NEAR(to_values(mlp_activation(config, row({2, 3})))[0], silu * 3, 1e-14);
  EXPECT_EQ(mlp_activation(config, row({1, 2, 3, 4})).shape(), (Shape{1, 2}));
}

TEST(Mlp, PlainActivationsAreThoseOfTheConfig) {
  TransformerConfig config = tiny();
  config.squared_relu = true;
  EXPECT_EQ(to_values(mlp_activation(config, row({-2, 3}))), (Values{0, 9}));
}

// By hand from the weights: x + W2 act(W1 norm(x)).
TEST(Mlp, AddsItsBranchToTheResidual) {
  TransformerConfig config = tiny();
  config.normalization = Normalization::RMSNorm;
  config.squared_relu = true;
  config.add_bias_linear = false;
  Mlp mlp(LayerContext{.config = config, .ranks = {}, .layer = 0});
  ParameterStore store(mlp, test_device(), {.dtype = DType::f64, .gradients = false});
  const RopeTables rope(config, 4, 6, DType::f64, test_device());
  GradMode off(test_runtime(), false);
  const Tensor x = randn({3, 1, 16}, Seed{1}), residual = randn({3, 1, 16}, Seed{2});
  const ForwardContext context;
  const RecomputePolicy policy;
  const Values got = to_values(mlp.add_to(residual, x, {rope, context, policy}));

  const Values in = to_values(x), base = to_values(residual),
               scale = to_values(store.find("linear_fc1.layer_norm_weight").value()),
               w1 = to_values(store.find("linear_fc1.weight").value()),  // [20, 16]
      w2 = to_values(store.find("linear_fc2.weight").value());           // [16, 20]
  for (size_t r = 0; r < 3; ++r) {
    double squares = 0;
    for (size_t i = 0; i < 16; ++i) squares += in[16 * r + i] * in[16 * r + i];
    const double rstd = 1 / std::sqrt(squares / 16 + config.norm_epsilon);
    Values active(20);
    for (size_t f = 0; f < 20; ++f) {
      double sum = 0;
      for (size_t i = 0; i < 16; ++i) sum += w1[16 * f + i] * in[16 * r + i] * rstd * scale[i];
      active[f] = sum > 0 ? sum * sum : 0;
    }
    for (size_t h = 0; h < 16; ++h) {
      double sum = base[16 * r + h];
      for (size_t f = 0; f < 20; ++f) sum += w2[20 * h + f] * active[f];
      EXPECT_NEAR(got[16 * r + h], sum, 1e-12);
    }
  }
}

TEST(Mlp, WhatIsComputedAgainGivesTheSameGradients) {
  for (const bool gated : {false, true}) {
    TransformerConfig config = tiny();
    config.swiglu = gated;
    const RopeTables rope(config, 4, 6, DType::f64, test_device());
    const Tensor x = randn({3, 2, 16}, Seed{1}), dy = randn({3, 2, 16}, Seed{2});  // [s, b, h]
    const auto run = [&](const RecomputePolicy& policy) {
      Mlp mlp(LayerContext{.config = config, .ranks = {}, .layer = 0});
      ParameterStore store(mlp, test_device(), {.dtype = DType::f64});
      store.begin_step();
      const ForwardContext context;
      Segment segment(std::span(&x, 1), [&](auto in) {
        return std::vector{mlp.add_to(in[0], in[0], {rope, context, policy})};
      });
      Values all = to_values(segment.backward(std::span(&dy, 1))[0]);
      mlp.for_each_parameter([&](const std::string&, Parameter& parameter) {
        const Values more = to_values(parameter.gradient());
        all.insert(all.end(), more.begin(), more.end());
      });
      return all;
    };
    EXPECT_EQ(run({}), run({.norms = true, .activation = true})) << gated;
  }
}

}  // namespace
}  // namespace phx
