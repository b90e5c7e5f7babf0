// What a token sees is a property of the call.
#include "phalanx/transformer/self_attention.h"

#include <gtest/gtest.h>

#include "phalanx/nn/parameter_store.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TransformerConfig tiny() {
  TransformerConfig config;
  config.num_layers = 1;
  config.hidden_size = 16;
  config.num_attention_heads = 2;
  config.seq_length = config.max_position_embeddings = 6;
  config.vocab_size = 8;
  config.position_embedding_type = PositionEmbedding::rope;
  config.attention_dropout = config.hidden_dropout = 0;
  config.init_method_std = 0.3;
  return config;
}

// The layer's output [6, 1, 16] for x, and for x with another last token.
struct Outputs {
  Tensor plain, other;
};

Outputs outputs(const TransformerConfig& config, const ForwardContext& context) {
  SelfAttention attention(LayerContext{.config = config, .ranks = {}, .layer = 0});
  ParameterStore store(attention, test_device(), {.dtype = DType::f64, .gradients = false});
  const RopeTables rope(config, 4, 6, DType::f64, test_device());
  GradMode off(test_runtime(), false);
  const Tensor x = randn({6, 1, 16}, Seed{1});
  Tensor changed = empty_like(x), last = changed.rows(5, 1);
  copy(x, changed);
  copy(randn({1, 1, 16}, Seed{2}), last);
  const RecomputePolicy policy;
  const LayerCall call{rope, context, policy};
  return {attention.add_to(x, x, call), attention.add_to(changed, changed, call)};
}

double largest_change(const Outputs& outputs, int64_t row) {
  const auto a = to_values(outputs.plain.rows(row, 1)), b = to_values(outputs.other.rows(row, 1));
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(SelfAttention, ATokenSeesThoseBeforeItOnlyUnlessTheCallSaysOtherwise) {
  const Outputs causal = outputs(tiny(), {}), both_ways = outputs(tiny(), {.causal = false});
  for (int64_t row = 0; row < 5; ++row) {
    EXPECT_EQ(largest_change(causal, row), 0) << row;
    EXPECT_GT(largest_change(both_ways, row), 1e-3) << row;
  }
  expect_close(causal.plain.rows(5, 1), both_ways.plain.rows(5, 1), 1e-14);  // it sees all anyway
}

TEST(SelfAttention, AWindowThatShouldLookAheadIsRefused) {
  TransformerConfig config = tiny();
  config.window_size = WindowSize{2, 0};
  const std::string error = error_of([&] { outputs(config, {.causal = false}); });
  EXPECT_NE(error.find("looks back only"), std::string::npos) << error;
}

}  // namespace
}  // namespace phx
