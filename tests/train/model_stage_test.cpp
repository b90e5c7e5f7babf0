#include "phalanx/train/model_stage.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "phalanx/models/model_family.h"
#include "phalanx/nn/parameter_store.h"
#include "support/gradients.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr int64_t kLength = 24, kSamples = 2;

TransformerConfig tiny_model() {
  TransformerConfig model = tiny_run().model;
  model.attention_dropout = model.hidden_dropout = 0;
  model.untie_embeddings_and_output_weights = true;
  model.resolve();
  return model;
}

// Models or parts of one, each with its weights, on one rank.
class Chunks {
 public:
  explicit Chunks(const std::vector<ModelPart>& parts) : config_(tiny_model()) {
    for (const ModelPart& part : parts) {
      models_.push_back(default_model()(config_, {.part = part}));
      models_.back()->prepare(test_device(), DType::f64, kLength, kSamples);
      stores_.push_back(std::make_unique<ParameterStore>(*models_.back(), test_device(),
                                                         StoreOptions{.dtype = DType::f64}));
      stores_.back()->begin_step();
    }
  }
  ModelStage stage() {
    std::vector<Model*> models;
    for (const auto& model : models_) models.push_back(model.get());
    return ModelStage(models, {.s = kLength, .b = kSamples, .dtype = DType::f64}, test_device());
  }
  // The gradients of all parameters, by name.
  std::map<std::string, std::vector<double>> gradients() {
    std::map<std::string, std::vector<double>> all;
    for (const auto& model : models_)
      model->for_each_parameter([&](const std::string& name, Parameter& parameter) {
        all[name] = to_values(parameter.gradient());
      });
    return all;
  }

 private:
  TransformerConfig config_;
  std::vector<std::unique_ptr<Model>> models_;
  std::vector<std::unique_ptr<ParameterStore>> stores_;
};

Batch batch(int micro_batch) {
  const auto ids = [&](uint64_t seed) {
    return rand_ints({kLength, kSamples}, 61, Seed{seed + uint64_t(micro_batch)});  // [s, b]
  };
  return {.tensors = {{"tokens", ids(10)}, {"labels", ids(20)}}};
}

StageWork work(const Tensor& loss_sum, const std::vector<double>& grad_scale) {
  return {.batch = batch,
          .samples = [](int k) { return SamplePlace{.first = k * kSamples}; },
          .context = {.seed = 1, .step = 1},
          .grad_scale =
              from_values(grad_scale, {int64_t(grad_scale.size())}, DType::f64, test_device()),
          .loss_sum = loss_sum};
}

void expect_same(const std::map<std::string, std::vector<double>>& a,
                 const std::map<std::string, std::vector<double>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    ASSERT_EQ(values.size(), b.at(name).size()) << name;
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], b.at(name)[i], 1e-12) << name;
  }
}

TEST(ModelStage, TwoChunksComputeWhatOneDoes) {
  Chunks whole({ModelPart{}});
  ModelStage one = whole.stage();
  const Tensor loss = zeros({1}, DType::f64, test_device());
  one.begin(work(loss, {0.5}));
  EXPECT_TRUE(one.forward(0, 0, {}).empty()) << "the loss stays inside";
  EXPECT_TRUE(one.backward(0, 0, {}, /*defer_weights=*/false).empty());

  Chunks parts({{.first_layer = 0, .num_layers = 1, .end = false},
                {.first_layer = 1, .num_layers = 2, .begin = false}});
  ModelStage two = parts.stage();
  const Tensor loss_of_two = zeros({1}, DType::f64, test_device());
  two.begin(work(loss_of_two, {0.5}));
  const StageMessage hidden = two.forward(0, 0, {});
  EXPECT_EQ(hidden.at("hidden").shape(), (Shape{kLength, kSamples, 32}));
  EXPECT_TRUE(two.forward(0, 1, hidden).empty());
  const StageMessage dhidden = two.backward(0, 1, {}, false);
  two.backward(0, 0, dhidden, false);

  EXPECT_GT(to_values(loss)[0], 0);
  EXPECT_NEAR(to_values(loss_of_two)[0], to_values(loss)[0], 1e-10);
  expect_same(parts.gradients(), whole.gradients());
}

TEST(ModelStage, GradientsOfWeightsThatArePutOffComeLater) {
  Chunks at_once({ModelPart{}}), later({ModelPart{}});
  ModelStage a = at_once.stage(), b = later.stage();
  for (auto* stage : {&a, &b}) stage->begin(work(zeros({1}, DType::f64, test_device()), {0.5}));
  a.forward(0, 0, {});
  a.backward(0, 0, {}, false);
  b.forward(0, 0, {});
  b.backward(0, 0, {}, /*defer_weights=*/true);
  b.weight_backward(0, 0);
  expect_same(later.gradients(), at_once.gradients());
}

TEST(ModelStage, MicroBatchesAreKeptApartAndHaveTheirOwnScaleAndLoss) {
  Chunks together({ModelPart{}}), first({ModelPart{}});
  ModelStage both = together.stage(), alone = first.stage();
  const Tensor losses = zeros({2}, DType::f64, test_device());  // one a micro-batch
  both.begin(work(losses, {1, 0}));  // the second one has no weight in the gradients
  both.forward(0, 0, {});
  both.forward(1, 0, {});
  both.backward(0, 0, {}, false);  // the older one first, as pipelines do
  both.backward(1, 0, {}, false);
  const Tensor loss = zeros({1}, DType::f64, test_device());
  alone.begin(work(loss, {1}));
  alone.forward(0, 0, {});
  alone.backward(0, 0, {}, false);
  expect_same(together.gradients(), first.gradients());
  EXPECT_DOUBLE_EQ(to_values(losses)[0], to_values(loss)[0]);
  EXPECT_NE(to_values(losses)[1], to_values(losses)[0]);
  EXPECT_GT(to_values(losses)[1], 0);
}

TEST(ModelStage, WithoutAScaleNothingIsKeptForABackward) {
  Chunks whole({ModelPart{}});
  ModelStage stage = whole.stage();
  const Tensor loss = zeros({1}, DType::f64, test_device());
  StageWork forward_only = work(loss, {1});
  forward_only.grad_scale = {};
  GradMode off(test_runtime(), false);
  stage.begin(forward_only);
  stage.forward(0, 0, {});
  EXPECT_GT(to_values(loss)[0], 0);
}

}  // namespace
}  // namespace phx
