#include "phalanx/models/gpt/gpt_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "phalanx/nn/parameter_store.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TransformerConfig tiny() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 8;
  config.num_attention_heads = 2;
  config.ffn_hidden_size = 12;
  config.seq_length = config.max_position_embeddings = 6;
  config.vocab_size = 10;
  config.make_vocab_size_divisible_by = 16;
  config.attention_dropout = config.hidden_dropout = 0;
  config.init_method_std = 0.3;
  return config;
}

std::set<std::string> names_of(const TransformerConfig& config, const ModelPart& part) {
  GptModel model(config, {.part = part});
  std::set<std::string> names;
  model.for_each_parameter([&](const std::string& name, Parameter&) { names.insert(name); });
  return names;
}

constexpr const char* kWords = "embedding.word_embeddings.weight";
constexpr const char* kOutput = "output_layer.weight";

TEST(GptModel, ATiedHeadIsTheEmbeddingAndTheLastPartHasACopy) {
  TransformerConfig config = tiny();
  EXPECT_TRUE(names_of(config, {}).contains(kWords));
  EXPECT_FALSE(names_of(config, {}).contains(kOutput));
  const ModelPart last{.first_layer = 1, .num_layers = 1, .begin = false};
  EXPECT_TRUE(names_of(config, last).contains(kWords)) << "its copy, under the same name";
  config.untie_embeddings_and_output_weights = true;
  EXPECT_TRUE(names_of(config, last).contains(kOutput));
  EXPECT_FALSE(names_of(config, last).contains(kWords));
}

TEST(GptModel, APartInTheMiddleHasLayersAlone) {
  for (const std::string& name :
       names_of(tiny(), {.first_layer = 1, .num_layers = 1, .begin = false, .end = false}))
    EXPECT_TRUE(name.starts_with("decoder.layers.1.")) << name;
}

TEST(GptModel, OneTensorPassesBetweenParts) {
  const TransformerConfig config = tiny();
  const GptModel first(config, {.part = {.num_layers = 1, .end = false}});
  const MicroBatchShape shape{.s = 6, .b = 3, .dtype = DType::bf16};
  EXPECT_TRUE(first.input(shape).empty());
  const MessageSpec output = static_cast<const Model&>(first).output(shape);
  ASSERT_EQ(output.size(), 1u);
  EXPECT_EQ(output[0].name, "hidden");
  EXPECT_EQ(output[0].shape, (Shape{6, 3, 8}));
  EXPECT_EQ(output[0].dtype, DType::bf16);
}

TEST(GptModel, PositionsHaveAnEndWhereTheyAreLearned) {
  TransformerConfig config = tiny();
  config.position_embedding_type = PositionEmbedding::learned_absolute;
  GptModel model(config);
  EXPECT_EQ(error_of([&] { model.prepare(test_device(), DType::f64, 7, 1); }),
            "positions up to 7 are asked for, but --max-position-embeddings is 6");
  config.position_embedding_type = PositionEmbedding::rope;
  GptModel turning(config);
  turning.prepare(test_device(), DType::f64, 7, 1);
}

TEST(GptModel, IsPreparedBeforeItRuns) {
  const TransformerConfig config = tiny();
  GptModel model(config);
  ParameterStore store(model, test_device(), {.dtype = DType::f64, .gradients = false});
  EXPECT_EQ(error_of([&] {
              model.hidden(rand_ints({6, 1}, 10, Seed{1}), {});
            }),
            "GptModel::prepare was not called");
}

// What the loss is the cross-entropy of is what a generator would sample from.
TEST(GptModel, TheLossIsThatOfTheLogits) {
  const TransformerConfig config = tiny();
  GptModel model(config);
  ParameterStore store(model, test_device(), {.dtype = DType::f64, .gradients = false});
  model.prepare(test_device(), DType::f64, 6, 1);
  GradMode off(test_runtime(), false);
  const Tensor tokens = rand_ints({6, 1}, 10, Seed{1}), labels = rand_ints({6, 1}, 10, Seed{2});
  const auto logits = to_values(model.generator()->logits(tokens, nullptr, false));  // [6, 10]
  ASSERT_EQ(logits.size(), 60u) << "without the padding of the vocabulary";
  const auto label = to_values(labels);
  double expected = 0;
  for (size_t i = 0; i < 6; ++i) {
    double sum = 0;
    for (size_t v = 0; v < 10; ++v) sum += std::exp(logits[10 * i + v]);
    expected += std::log(sum) - logits[10 * i + size_t(label[i])];
  }
  const Batch batch{.tensors = {{"tokens", tokens}, {"labels", labels}}};
  const ModelOutput output = model.forward({}, batch, {}, {.training = false});
  EXPECT_NEAR(to_values(output.loss_sum)[0], expected, 1e-12);
}

}  // namespace
}  // namespace phx
