#include "phalanx/models/generate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/models/gpt/gpt_model.h"
#include "phalanx/nn/parameter_store.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TransformerConfig tiny(PositionEmbedding positions) {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 24;
  config.num_attention_heads = 4;
  config.group_query_attention = true;
  config.num_query_groups = 2;
  config.ffn_hidden_size = 40;
  config.seq_length = config.max_position_embeddings = 32;
  config.vocab_size = 50;
  config.make_vocab_size_divisible_by = 1;
  config.position_embedding_type = positions;
  config.window_size = WindowSize{5, 0};
  config.window_attn_skip_freq = FrequencyPattern{.every = 2};
  config.init_method_std = 0.3;  // so that logits differ clearly
  return config;
}

TEST(Generate, TheCacheGivesTheLogitsOfAWholeForward) {
  for (PositionEmbedding positions :
       {PositionEmbedding::rope, PositionEmbedding::learned_absolute}) {
    GptModel model(tiny(positions));
    ParameterStore store(model, test_device(), {.dtype = DType::f64, .gradients = false});
    model.prepare(test_device(), DType::f64, 32, 1);
    GradMode off(test_runtime(), false);
    const Tensor tokens = rand_ints({12, 1}, 50, Seed{3});
    const Tensor whole =
        model.generator()->logits(tokens, nullptr, /*last_only=*/false);  // [12, v]
    KvCache cache = model.generator()->make_cache(16, 1);
    int64_t at = 0;
    for (int64_t count : {5, 1, 1, 4, 1}) {  // a prompt, then pieces of any length
      const Tensor logits = model.generator()->logits(tokens.rows(at, count), &cache, false);
      expect_close(logits, whole.rows(at, count), 1e-12);  // f64, sums in another order
      at += count;
    }
  }
}

TEST(Generate, TheSameSeedGivesTheSameTokensAndStopsWhenTold) {
  GptModel model(tiny(PositionEmbedding::rope));
  ParameterStore store(model, test_device(), {.dtype = DType::f32, .gradients = false});
  model.prepare(test_device(), DType::f32, 32, 1);
  const std::vector<int32_t> prompt = {1, 2, 3};
  const auto a = generate(*model.generator(), prompt, 20, {.seed = 5}),
             b = generate(*model.generator(), prompt, 20, {.seed = 5});
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.size(), 20u);
  EXPECT_NE(a, generate(*model.generator(), prompt, 20, {.seed = 6}));
  const auto cut = generate(*model.generator(), prompt, 20, {.seed = 5},
                            [&](int32_t token) { return token == a[4]; });
  EXPECT_LE(cut.size(), 5u);
  EXPECT_EQ(cut.back(), a[4]);
}

TEST(SampleToken, TemperatureZeroTakesTheLikeliest) {
  const std::vector<float> logits = {0.f, 3.f, 3.f, 1.f};
  EXPECT_EQ(sample_token(logits, {.temperature = 0}, 0.9), 1);  // ties: the lower id
}

TEST(SampleToken, FollowsTheDistribution) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  EXPECT_EQ(sample_token(logits, {}, 0.49), 0);
  EXPECT_EQ(sample_token(logits, {}, 0.51), 1);
  EXPECT_EQ(sample_token(logits, {}, 0.81), 2);
  EXPECT_EQ(sample_token(logits, {.top_k = 2}, 0.99), 1);
  EXPECT_EQ(sample_token(logits, {.top_p = 0.5}, 0.99), 0);
  EXPECT_EQ(sample_token(logits, {.top_p = 0.6}, 0.99), 1);
}

TEST(SampleToken, RefusesBrokenLogits) {
  EXPECT_NE(error_of([] {
              sample_token(std::vector<float>{1.f, NAN}, {}, 0.5);
            }).find("not a number"),
            std::string::npos);
}

}  // namespace
}  // namespace phx
