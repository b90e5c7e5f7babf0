#include "phalanx/transformer/block.h"

#include <gtest/gtest.h>

#include <set>

#include "phalanx/core/segment.h"
#include "phalanx/nn/parameter_store.h"
#include "phalanx/ops/dropout.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

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

// Doubles the stream, and writes down which layer it is.
class Doubles : public LayerPart {
 public:
  Doubles(int64_t layer, std::vector<int64_t>& ran) : layer_(layer), ran_(ran) {}
  Tensor add_to(const Tensor& residual, const Tensor& x, const LayerCall&) override {
    ran_.push_back(layer_);
    return bias_dropout_add(residual, x, Tensor(), 0.0, {});
  }

 private:
  int64_t layer_;
  std::vector<int64_t>& ran_;
};

struct Ran {
  std::vector<int64_t> forward, all;  // layers, in order; with those of the backward
  double output = 0, gradient = 0;    // of 1
};

Ran run(const RecomputePolicy& policy) {
  const TransformerConfig config = tiny();
  std::vector<int64_t> layers;
  TransformerBlock block(
      config, policy, {.first = 2, .count = 3, .final_norm = false}, {},
      [&](const LayerContext& layer) {
        std::vector<NamedPart> parts;
        parts.push_back({"double", std::make_unique<Doubles>(layer.layer, layers)});
        return parts;
      });
  const RopeTables rope(config, 4, 6, DType::f64, test_device());
  const Tensor x = from_values(std::vector<double>{1}, {1, 1, 1}, DType::f64, test_device());
  const ForwardContext context;
  Segment segment(std::span(&x, 1),
                  [&](auto in) { return std::vector{block.forward(in[0], rope, context)}; });
  Ran ran{.forward = layers};
  ran.output = to_values(segment.outputs()[0])[0];
  const Tensor one = from_values(std::vector<double>{1}, {1, 1, 1}, DType::f64, test_device());
  ran.gradient = to_values(segment.backward(std::span(&one, 1))[0])[0];
  ran.all = layers;
  return ran;
}

using Layers = std::vector<int64_t>;
using Which = RecomputePolicy::Layers;

TEST(TransformerBlock, LayersRunInOrderAndOnce) {
  const Ran ran = run({});
  EXPECT_EQ(ran.all, (Layers{2, 3, 4}));
  EXPECT_EQ(ran.output, 8);
  EXPECT_EQ(ran.gradient, 8);
}

TEST(TransformerBlock, UniformRecomputeRunsUnitsAgainFromTheirInputs) {
  const Ran ran = run({.layers = Which::uniform, .num_layers = 2});  // units 2 3 | 4
  EXPECT_EQ(ran.forward, (Layers{2, 3, 4}));
  EXPECT_EQ(ran.all, (Layers{2, 3, 4, 4, 2, 3}));
  EXPECT_EQ(ran.gradient, 8);
}

TEST(TransformerBlock, BlockRecomputeTakesTheFirstLayersAlone) {
  const Ran ran = run({.layers = Which::block, .num_layers = 2});
  EXPECT_EQ(ran.all, (Layers{2, 3, 4, 3, 2}));
  EXPECT_EQ(run({.layers = Which::block, .num_layers = 9}).all, (Layers{2, 3, 4, 4, 3, 2}));
  EXPECT_EQ(ran.gradient, 8);
}

TEST(TransformerBlock, APartIsRecomputedByItsName) {
  EXPECT_EQ(run({.parts = {"double"}}).all, (Layers{2, 3, 4, 4, 3, 2}));
  EXPECT_EQ(run({.parts = {"mlp"}}).all, (Layers{2, 3, 4}));
}

TEST(TransformerBlock, NamesHoldGlobalIndicesAndTheFinalNormIsTheLastOnes) {
  const TransformerConfig config = tiny();
  const auto names = [&](const LayerRange& range) {
    TransformerBlock block(config, {}, range, {}, decoder_layer);
    std::set<std::string> first_words;
    block.for_each_parameter([&](const std::string& name, Parameter&) {
      first_words.insert(name.substr(0, name.find('.', name.starts_with("layers.") ? 7 : 0)));
    });
    return first_words;
  };
  EXPECT_EQ(names({.first = 1, .count = 2, .final_norm = false}),
            (std::set<std::string>{"layers.1", "layers.2"}));
  EXPECT_EQ(names({.first = 3, .count = 1, .final_norm = true}),
            (std::set<std::string>{"layers.3", "final_layernorm"}));
}

TEST(DecoderLayer, HasAttentionThenAnMlpOrExperts) {
  TransformerConfig config = tiny();
  const auto parts = [&](int64_t layer) {
    std::vector<std::string> names;
    for (const NamedPart& part : decoder_layer({.config = config, .ranks = {}, .layer = layer}))
      names.push_back(part.name);
    return names;
  };
  EXPECT_EQ(parts(0), (std::vector<std::string>{"self_attention", "mlp"}));
  config.moe.num_experts = 4;
  config.moe.moe_layer_freq = FrequencyPattern{.every = 2};
  EXPECT_EQ(parts(0).at(1) == "moe", config.moe.has_experts(0));
  EXPECT_EQ(parts(1).at(1) == "moe", config.moe.has_experts(1));
  EXPECT_NE(config.moe.has_experts(0), config.moe.has_experts(1));
}

}  // namespace
}  // namespace phx
