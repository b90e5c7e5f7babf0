#include "phalanx/models/gpt/gpt_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "phalanx/comm/meta_world.h"
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

// The main loss, and factor / K times the mean of each loss ahead for every token that the main one
// counts: by the losses that the model itself adds up, at weights a little apart.
TEST(GptModel, LossesAheadEnterTheGradientsAndNotTheLoss) {
  TransformerConfig config = tiny();
  config.mtp_num_layers = 2;
  config.mtp_loss_scaling_factor = 0.6;
  for (const bool tied : {true, false}) {
    config.untie_embeddings_and_output_weights = !tied;
    GptModel model(config);
    ParameterStore store(model, test_device(), {.dtype = DType::f64});
    model.prepare(test_device(), DType::f64, 6, 2);
    Batch batch{.counted = {11, 6, 3}};  // some labels do not count
    for (const char* name : {"tokens", "tokens.1", "tokens.2", "labels", "labels.1", "labels.2"})
      batch.tensors.add(name, rand_ints({6, 2}, 10, Seed{uint64_t(name[0] + name[6] + name[7])}));
    Tensor tally = zeros({2}, DType::f64, test_device());
    const ForwardContext context{.ahead_tally = tally};
    const auto objective = [&](std::vector<double>* main) {
      GradMode off(test_runtime(), false);
      set_zero(tally);
      const ModelOutput output = model.forward({}, batch, {}, context);
      const std::vector<double> sums = to_values(tally);
      if (main != nullptr) *main = to_values(output.loss_sum);
      return to_values(output.loss_sum)[0] + 0.3 * 11 * (sums[0] / 6 + sums[1] / 3);
    };
    std::vector<double> main;
    const double all = objective(&main);
    EXPECT_GT(all, main[0] + 1) << "nothing is ahead";

    store.begin_step();
    const Tensor one = from_values(std::vector<double>{1}, {1}, DType::f64, test_device());
    const ModelOutput output = model.forward({}, batch, one, context);
    EXPECT_NEAR(to_values(output.loss_sum)[0], main[0], 1e-12);
    backward(output.loss_sum, one);
    int looked_at = 0;
    for (Parameter* parameter : store.parameters()) {
      parameter->finish_step();
      const std::vector<double> gradients = to_values(parameter->gradient());
      Tensor weights = parameter->value();
      auto* values = weights.data<double>();
      const auto count = int64_t(gradients.size());
      for (const int64_t i : {count / 3, count - 1}) {
        const double kept = values[i], step = 1e-5;
        values[i] = kept + step;
        const double above = objective(nullptr);
        values[i] = kept - step;
        const double below = objective(nullptr);
        values[i] = kept;
        // Central differences of a sum of about 60: rounding 1e-9, curvature 1e-8.
        EXPECT_NEAR(gradients[size_t(i)], (above - below) / (2 * step), 1e-6)
            << parameter->name() << " " << i;
        ++looked_at;
      }
    }
    EXPECT_GT(looked_at, 60);
  }
}

TEST(GptModel, LayersAheadLieBehindTheNormOfTheDecoder) {
  TransformerConfig config = tiny();
  config.mtp_num_layers = 1;
  config.untie_embeddings_and_output_weights = true;
  using Ahead = ModelPart::Ahead;
  const auto first = names_of(config, {.num_layers = 1, .end = false, .ahead = Ahead::later});
  const auto middle =
      names_of(config, {.first_layer = 1, .num_layers = 1, .begin = false, .end = false});
  const auto last = names_of(
      config, {.first_layer = 2, .num_layers = 0, .begin = false, .ahead = Ahead::earlier});
  EXPECT_TRUE(first.contains(kWords) && middle.contains(kWords));
  EXPECT_TRUE(middle.contains("decoder.final_layernorm.weight"));
  EXPECT_TRUE(middle.contains("mtp.layers.0.eh_proj.weight"));
  EXPECT_TRUE(middle.contains("mtp.layers.0.transformer_layer.mlp.linear_fc1.weight"));
  EXPECT_EQ(last, (std::set<std::string>{kOutput}));
  const GptModel part(config,
                      {.part = {.first_layer = 1, .num_layers = 1, .begin = false, .end = false}});
  const MicroBatchShape shape{.s = 6, .b = 3, .dtype = DType::bf16};
  EXPECT_EQ(static_cast<const Model&>(part).input(shape).size(), 1u);
  const MessageSpec output = static_cast<const Model&>(part).output(shape);
  ASSERT_EQ(output.size(), 2u);
  EXPECT_EQ(output[1].name, "ahead.1");
}

// Works on a token at a time, but does not say so.
class Quiet : public LayerPart {
 public:
  Tensor add_to(const Tensor& residual, const Tensor&, const LayerCall&) override {
    return residual;
  }
};

TEST(GptModel, TakesContextParallelismIfTheLayersAheadDo) {
  TransformerConfig config = tiny();
  config.mtp_num_layers = 1;
  const auto quiet_from = [](int64_t first) {
    return [first](const LayerContext& layer) {
      std::vector<NamedPart> parts = decoder_layer(layer);
      if (layer.layer >= first) parts.push_back({"quiet", std::make_unique<Quiet>()});
      return parts;
    };
  };
  EXPECT_TRUE(GptModel(config).takes_context_parallel());
  EXPECT_FALSE(GptModel(config, {}, quiet_from(1)).takes_context_parallel());
  EXPECT_FALSE(GptModel(config, {}, quiet_from(2)).takes_context_parallel()) << "the layer ahead";
  EXPECT_TRUE(GptModel(config, {}, quiet_from(3)).takes_context_parallel());
}

TEST(GptModel, PackedSequencesThatRanksShareNeedThePositionsOfTheirTokens) {
  Runtime runtime({.kind = DeviceKind::meta});
  const Device device = runtime.device();
  MetaWorld world(1, 3);
  const auto group = world.group({0, 1, 2}, "cp");
  TransformerConfig config = tiny();
  config.position_embedding_type = PositionEmbedding::learned_absolute;
  GptModel model(config, {.ranks = {.context = {.group = group.get()}}});
  ParameterStore store(model, device, {.dtype = DType::f32, .gradients = false});
  model.prepare(device, DType::f32, 6, 1);
  GradMode off(runtime, false);
  // Two of six rows, as tokens, labels and positions.
  const auto rows = [&](DType dtype) { return empty({2, 1}, dtype, device); };
  Batch batch{.tensors = {{"tokens", rows(DType::i32)}, {"labels", rows(DType::i32)}}};
  const auto run = [&] { model.forward({}, batch, Tensor(), {.training = false}); };
  run();  // prepared ones
  batch.packed = {.cu_seqlens = empty({3}, DType::i32, device), .max_seqlen = 4};
  EXPECT_EQ(error_of(run),
            "packed sequences that are cut over ranks need the positions of their tokens");
  batch.tensors.add("positions", rows(DType::i32));
  run();
}

}  // namespace
}  // namespace phx
