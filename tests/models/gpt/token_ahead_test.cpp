#include "phalanx/models/gpt/token_ahead.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "phalanx/nn/parameter_store.h"
#include "phalanx/ops/scale.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

using Values = std::vector<double>;

constexpr int64_t kHidden = 4, kTokens = 3;

TransformerConfig tiny() {
  TransformerConfig config;
  config.num_layers = 5;
  config.mtp_num_layers = 2;
  config.hidden_size = kHidden;
  config.num_attention_heads = 2;
  config.seq_length = config.max_position_embeddings = kTokens;
  config.vocab_size = 8;
  config.position_embedding_type = PositionEmbedding::rope;
  config.normalization = Normalization::RMSNorm;
  config.attention_dropout = config.hidden_dropout = 0;
  config.init_method_std = 0.5;
  return config;
}

// A layer that multiplies by 3, so that sums by hand stay short.
class Triples : public LayerPart {
 public:
  Tensor add_to(const Tensor&, const Tensor& x, const LayerCall&) override { return scale(x, 3); }
};

struct Ahead {
  explicit Ahead(const RecomputePolicy& policy = {}, int64_t ahead = 1)
      : layer(config, ahead, policy, {},
              [this](const LayerContext& context) {
                built = context.layer;
                std::vector<NamedPart> parts;
                parts.push_back({"triple", std::make_unique<Triples>()});
                return parts;
              }),
        store(layer, test_device(), {.dtype = DType::f64}),
        rope(config, 4, kTokens, DType::f64, test_device()) {}

  Tensor operator()(const Tensor& hidden, const Tensor& embedded) {
    return layer.forward(hidden, embedded, rope, context);
  }

  TransformerConfig config = tiny();
  int64_t built = -1;
  TokenAhead layer;
  ParameterStore store;
  RopeTables rope;
  ForwardContext context;
};

Values normed(Values x, double epsilon) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::sqrt(squares / double(x.size()) + epsilon);
  return x;
}

Values token_of(const Values& all, size_t t) {
  return {all.begin() + int64_t(t) * kHidden, all.begin() + int64_t(t + 1) * kHidden};
}

TEST(TokenAhead, ProjectsTheEmbeddingAndThenTheHiddenStateThroughALayer) {
  Ahead ahead;
  const Tensor hidden = randn({kTokens, 1, kHidden}, Seed{1}),
               embedded = randn({kTokens, 1, kHidden}, Seed{2});
  const Values w = to_values(ahead.store.find("eh_proj.weight").value());  // [h, 2h]
  const Values h = to_values(hidden), e = to_values(embedded);
  GradMode off(test_runtime(), false);
  const Values got = to_values(ahead(hidden, embedded));
  const double epsilon = ahead.config.norm_epsilon;
  for (size_t t = 0; t < kTokens; ++t) {
    Values in = normed(token_of(e, t), epsilon);
    for (const double value : normed(token_of(h, t), epsilon)) in.push_back(value);
    Values x(kHidden);
    for (size_t r = 0; r < kHidden; ++r)
      for (size_t c = 0; c < 2 * kHidden; ++c) x[r] += 3 * w[r * 2 * kHidden + c] * in[c];
    const Values wanted = normed(x, epsilon);
    for (size_t i = 0; i < kHidden; ++i) EXPECT_NEAR(got[t * kHidden + i], wanted[i], 1e-12);
  }
}

TEST(TokenAhead, ItsLayerIsNumberedBehindTheDecoders) {
  EXPECT_EQ(Ahead({}, 0).built, 5);
  EXPECT_EQ(Ahead({}, 1).built, 6);
}

TEST(TokenAhead, ParametersHaveMegatronsNames) {
  Ahead ahead;
  std::set<std::string> names;
  for (const Parameter* parameter : ahead.store.parameters()) names.insert(parameter->name());
  EXPECT_EQ(names, (std::set<std::string>{"enorm.weight", "hnorm.weight", "eh_proj.weight",
                                          "final_layernorm.weight"}));
}

TEST(TokenAhead, RecomputedItGivesTheSameGradients) {
  const auto gradients = [](const RecomputePolicy& policy) {
    Ahead ahead(policy);
    const std::vector<Tensor> in = {randn({kTokens, 1, kHidden}, Seed{1}),
                                    randn({kTokens, 1, kHidden}, Seed{2})};
    ahead.store.begin_step();
    const Gradients found =
        gradients_of([&](std::span<const Tensor> x) { return ahead(x[0], x[1]); }, in);
    std::vector<Values> values = {to_values(ahead.store.gradients())};
    for (const Tensor& gradient : found.inputs) values.push_back(to_values(gradient));
    return values;
  };
  const auto kept = gradients({});
  EXPECT_EQ(gradients({.layers = RecomputePolicy::Layers::uniform}), kept);
  EXPECT_GT(std::abs(kept[1][0]), 0);
  EXPECT_GT(std::abs(kept[2][0]), 0);
}

}  // namespace
}  // namespace phx
