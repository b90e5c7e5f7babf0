#include "phalanx/transformer/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "phalanx/nn/parameter_store.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

using Values = std::vector<double>;

constexpr int64_t kHidden = 8, kWidth = 6, kExperts = 4, kTokens = 5;

TransformerConfig tiny() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = kHidden;
  config.num_attention_heads = 2;
  config.seq_length = config.max_position_embeddings = kTokens;
  config.vocab_size = 8;
  config.position_embedding_type = PositionEmbedding::rope;
  config.normalization = Normalization::RMSNorm;
  config.add_bias_linear = false;
  config.squared_relu = true;
  config.attention_dropout = config.hidden_dropout = 0;
  config.init_method_std = 0.5;
  config.moe.num_experts = kExperts;
  config.moe.moe_router_topk = 2;
  config.moe.moe_ffn_hidden_size = kWidth;
  return config;
}

Values product(const Values& matrix, size_t first_row, size_t rows, const Values& x) {
  Values y(rows);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < x.size(); ++c) y[r] += matrix[(first_row + r) * x.size() + c] * x[c];
  return y;
}

Values squared_relu(Values x) {
  for (double& value : x) value = value > 0 ? value * value : 0;
  return x;
}

// A layer with its weights, and what it is by its definition.
struct Layer {
  explicit Layer(TransformerConfig given)
      : config(std::move(given)),
        layer(LayerContext{.config = config, .ranks = {}, .layer = 1}),
        store(layer, test_device(), {.dtype = DType::f64, .gradients = false}),
        buffers(layer, test_device(), {.dtype = DType::f64, .buffers = true}),
        rope(config, 4, kTokens, DType::f64, test_device()) {}

  Values operator()(const Tensor& residual, const Tensor& x) {
    GradMode off(test_runtime(), false);
    return to_values(layer.add_to(residual, x, {rope, context, policy}));
  }
  Values weight(const char* name) const { return to_values(store.find(name).value()); }

  // Of each token's two best experts what they give, by the softmax over the two logits.
  std::map<size_t, double> chosen(const Values& x) const {
    const Values logits = product(weight("mlp.router.weight"), 0, kExperts, x);
    std::vector<size_t> order = {0, 1, 2, 3};
    std::ranges::sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    const double first = 1 / (1 + std::exp(logits[order[1]] - logits[order[0]]));
    return {{order[0], first}, {order[1], 1 - first}};
  }
  Values expert(size_t e, const Values& x) const {
    const Values hidden =
        squared_relu(product(weight("mlp.experts.linear_fc1.weight"), e * kWidth, kWidth, x));
    return product(weight("mlp.experts.linear_fc2.weight"), e * kHidden, kHidden, hidden);
  }

  TransformerConfig config;
  MoeLayer layer;
  ParameterStore store, buffers;
  RopeTables rope;
  ForwardContext context;
  RecomputePolicy policy;
};

Values normed(const Values& all, size_t token, double epsilon) {
  const auto begin = all.begin() + int64_t(token) * kHidden;
  Values x(begin, begin + kHidden);
  double squares = 0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::sqrt(squares / kHidden + epsilon);
  return x;  // the norm's weight is 1
}

struct Input {
  Tensor residual = randn({kTokens, 1, kHidden}, Seed{1}),
         x = randn({kTokens, 1, kHidden}, Seed{2});
};

void expect_near(const Values& got, const Values& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12) << i;
}

TEST(MoeLayer, AddsTheBestExpertsByTheirWeights) {
  Layer layer(tiny());
  const Input in;
  Values wanted = to_values(in.residual);
  for (size_t t = 0; t < kTokens; ++t) {
    const Values x = normed(to_values(in.x), t, layer.config.norm_epsilon);
    for (const auto& [e, weight] : layer.chosen(x)) {
      const Values y = layer.expert(e, x);
      for (size_t i = 0; i < kHidden; ++i) wanted[t * kHidden + i] += weight * y[i];
    }
  }
  expect_near(layer(in.residual, in.x), wanted);
}

TEST(MoeLayer, EveryTokenGoesThroughTheSharedExpertByItsGate) {
  TransformerConfig config = tiny();
  config.moe.moe_shared_expert_intermediate_size = 10;
  config.moe.moe_shared_expert_gate = true;
  Layer layer(config), without(tiny());
  const Input in;
  Values wanted = without(in.residual, in.x);  // initial weights go by name: the same experts
  for (size_t t = 0; t < kTokens; ++t) {
    const Values x = normed(to_values(in.x), t, config.norm_epsilon);
    const Values hidden =
        squared_relu(product(layer.weight("mlp.shared_experts.linear_fc1.weight"), 0, 10, x));
    const Values y =
        product(layer.weight("mlp.shared_experts.linear_fc2.weight"), 0, kHidden, hidden);
    const double gate =
        1 / (1 + std::exp(-product(layer.weight("mlp.shared_experts.gate_weight"), 0, 1, x)[0]));
    for (size_t i = 0; i < kHidden; ++i) wanted[t * kHidden + i] += gate * y[i];
  }
  expect_near(layer(in.residual, in.x), wanted);
}

TEST(MoeLayer, ATokenWithoutRoomKeepsItsResidualAlone) {
  TransformerConfig config = tiny();
  config.moe.moe_router_topk = 1;
  config.moe.moe_router_pre_softmax = true;
  config.moe.moe_expert_capacity_factor = 0.8;  // ceil(5 x 1 / 4 x 0.8) = 1 token an expert
  config.moe.moe_token_drop_policy = TokenDropPolicy::position;
  Layer layer(config);
  const Input in;
  const Values got = layer(in.residual, in.x), residual = to_values(in.residual);
  std::set<size_t> taken;
  for (size_t t = 0; t < kTokens; ++t) {
    const auto best = layer.chosen(normed(to_values(in.x), t, config.norm_epsilon));
    const size_t e =
        std::ranges::max_element(best, {}, [](auto& one) { return one.second; })->first;
    const bool first = taken.insert(e).second;
    const auto at = int64_t(t) * kHidden;
    EXPECT_EQ(std::equal(got.begin() + at, got.begin() + at + kHidden, residual.begin() + at),
              !first)
        << "token " << t;
  }
  EXPECT_LT(taken.size(), size_t(kTokens));
}

TEST(MoeLayer, BiasesMoveTheChoiceButNotTheWeights) {
  TransformerConfig config = tiny();
  config.moe.moe_router_topk = 1;
  config.moe.moe_router_score_function = RouterScoreFunction::sigmoid;
  config.moe.moe_router_enable_expert_bias = true;
  Layer layer(config);
  layer.buffers.find("mlp.router.expert_bias").value().data<double>()[2] = 100;
  const Input in;
  Values wanted = to_values(in.residual);
  for (size_t t = 0; t < kTokens; ++t) {
    const Values x = normed(to_values(in.x), t, config.norm_epsilon);
    const double score =
        1 / (1 + std::exp(-product(layer.weight("mlp.router.weight"), 2, 1, x)[0]));
    const Values y = layer.expert(2, x);
    for (size_t i = 0; i < kHidden; ++i) wanted[t * kHidden + i] += score * y[i];
  }
  expect_near(layer(in.residual, in.x), wanted);
}

TEST(MoeLayer, ParametersHaveMegatronsNames) {
  TransformerConfig config = tiny();
  config.moe.moe_shared_expert_intermediate_size = 10;
  config.moe.moe_router_score_function = RouterScoreFunction::sigmoid;
  config.moe.moe_router_enable_expert_bias = true;
  const Layer layer(config);
  std::set<std::string> names;
  for (const ParameterStore* store : {&layer.store, &layer.buffers})
    for (const Parameter* parameter : store->parameters()) names.insert(parameter->name());
  EXPECT_EQ(names,
            (std::set<std::string>{
                "pre_mlp_layernorm.weight", "mlp.router.weight", "mlp.router.expert_bias",
                "mlp.experts.linear_fc1.weight", "mlp.experts.linear_fc2.weight",
                "mlp.shared_experts.linear_fc1.weight", "mlp.shared_experts.linear_fc2.weight"}));
}

}  // namespace
}  // namespace phx
