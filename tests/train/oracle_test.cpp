// Whole models against PyTorch (the transformers library): tests/data/oracle/README.md says what
// the files hold. Tolerances: in f64 only the order of additions differs; in f32 the bounds are
// those the project promises (1e-5 for logits, loss and gradients, 1e-4 along 50 optimizer steps);
// PyTorch's own distance between f32 and f64, stored in the files, is up to 3e-6.
#include "train/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "phalanx/base/distance.h"
#include "phalanx/base/option_binder.h"
#include "phalanx/base/options.h"
#include "phalanx/train/session.h"
#include "phalanx/train/train_fields.h"
#include "phalanx/transformer/transformer_fields.h"

namespace phx {
namespace {

using namespace phx::testing;

struct Oracle {
  explicit Oracle(const std::string& family, DType dtype) : file(oracle_path(family)) {
    OptionSet options;
    options.add("Model", config);
    options.add("Run", train);
    options.add("Optimizer", optim);
    auto args = words(file.metadata().at("flags"));
    if (file.metadata().contains("optimizer_flags"))
      for (auto& word : words(file.metadata().at("optimizer_flags"))) args.push_back(word);
    else
      args.insert(args.end(), {"--lr", "1"});
    const ParseReport report = options.parse(args);
    EXPECT_TRUE(report.ok()) << format_problems(report.problems);

    model = default_model()(config);
    store = std::make_unique<ParameterStore>(*model, test_device(),
                                             StoreOptions{.dtype = dtype, .initialize = false});
    b = train.micro_batch_size;
    s = config.seq_length;
    model->prepare(test_device(), dtype, s, b);
    size_t found = 0;
    for (const auto& tensor : file.tensors()) found += tensor.name.starts_with("weight.");
    EXPECT_EQ(found, store->parameters().size()) << "the file has other parameters than the model";
    for (const Parameter* parameter : store->parameters())
      set_parameter(*parameter, doubles(file.at("weight." + parameter->name())));
  }

  std::vector<double> gradient(const Parameter& parameter) const {
    const Tensor& local = parameter.gradient();
    const auto bytes = to_global(parameter, local);
    std::vector<double> result(parameter.spec().global_shape.numel());
    for (size_t i = 0; i < result.size(); ++i) {
      if (local.dtype() == DType::f64) {
        std::memcpy(&result[i], bytes.data() + i * 8, 8);
      } else {
        float value;
        std::memcpy(&value, bytes.data() + i * 4, 4);
        result[i] = value;
      }
    }
    return result;
  }

  SafetensorsFile file;
  TransformerConfig config;
  TrainConfig train;
  OptimizerConfig optim;
  std::unique_ptr<Model> model;
  std::unique_ptr<ParameterStore> store;
  int64_t b = 0, s = 0;
};

void expect_model_matches(const std::string& family, DType dtype, double tolerance) {
  SCOPED_TRACE(family);
  Oracle oracle(family, dtype);
  const std::string wide = dtype == DType::f64 ? "64" : "";
  const auto tokens_in = [&](const char* name) {
    return tokens_of(values<int64_t>(oracle.file.at(name)), oracle.b, oracle.s, test_device());
  };
  const Batch batch{.tensors = {{"tokens", tokens_in("tokens")}, {"labels", tokens_in("labels")}}};
  const auto labels = values<int64_t>(oracle.file.at("labels"));
  const double n =
      double(std::count_if(labels.begin(), labels.end(), [](int64_t x) { return x >= 0; }));

  // Logits come out as [s, b, v], the file has [b, s, v].
  const auto logits = to_values(
      oracle.model->generator()->logits(batch.tensors.at("tokens"), nullptr, /*last_only=*/false));
  const auto expected = doubles(oracle.file.at("logits" + wide));
  const int64_t v = int64_t(expected.size()) / (oracle.b * oracle.s);
  std::vector<double> reordered(logits.size());
  for (int64_t i = 0; i < oracle.s; ++i)
    for (int64_t j = 0; j < oracle.b; ++j)
      for (int64_t c = 0; c < v; ++c)
        reordered[(j * oracle.s + i) * v + c] = logits[(i * oracle.b + j) * v + c];
  EXPECT_LE(relative_error(reordered, expected), tolerance) << "logits";

  const Tensor scale =
      from_values(std::vector<double>{1 / n}, {1}, acc_dtype(dtype), test_device());
  const Tensor one = from_values(std::vector<double>{1}, {1}, acc_dtype(dtype), test_device());
  oracle.store->begin_step();
  const ModelOutput loss = oracle.model->forward({}, batch, scale, {.training = false});
  backward(loss.loss_sum, one);
  oracle.store->finish_step();
  const double expected_loss = doubles(oracle.file.at("loss" + wide))[0];
  EXPECT_NEAR(to_values(loss.loss_sum)[0] / n, expected_loss, tolerance * expected_loss);
  for (const Parameter* parameter : oracle.store->parameters()) {
    const auto gradient = oracle.gradient(*parameter);
    EXPECT_LE(relative_error(gradient, doubles(oracle.file.at("grad." + parameter->name()))),
              tolerance)
        << "gradient of " << parameter->name();
  }
}

const char* const kFamilies[] = {"gpt2",  "llama3", "qwen3",    "gemma2",      "mistral",
                                 "qwen2", "gemma1", "gemma3",   "mixtral",     "qwen2_moe",
                                 "olmoe", "mla",    "mla_lite", "deepseek_v3", "qwen3_moe"};

TEST(Oracle, ModelsInDoublePrecisionEqualPyTorchs) {
  for (const char* family : kFamilies) expect_model_matches(family, DType::f64, 1e-10);
}

TEST(Oracle, ModelsInSinglePrecisionEqualPyTorchsTo1e5) {
  for (const char* family : kFamilies) expect_model_matches(family, DType::f32, 1e-5);
}

void expect_curve_matches(const std::string& family, DType dtype, double tolerance) {
  SCOPED_TRACE(family);
  Oracle oracle(family, dtype);
  Optimizer optimizer(*oracle.store, oracle.optim);
  const Mesh mesh;
  const Layout layout;
  DataParallel data_parallel(*oracle.store, {}, {});
  ModelStage stage({oracle.model.get()}, {.dtype = dtype}, test_device());
  TrainStep step({stage, *oracle.store, data_parallel, optimizer, mesh, layout}, oracle.optim, 1);
  const auto tokens = values<int64_t>(oracle.file.at("train_tokens"));
  const auto labels = values<int64_t>(oracle.file.at("train_labels"));
  const std::string wide = dtype == DType::f64 ? "64" : "";
  const auto losses = doubles(oracle.file.at("losses" + wide)),
             norms = doubles(oracle.file.at("grad_norms" + wide));
  const int64_t plane = oracle.b * oracle.s;
  for (int64_t i = 0; i < 50; ++i) {
    const auto part = [&](const std::vector<int64_t>& all) {
      return tokens_of(std::span(all).subspan(i * plane, plane), oracle.b, oracle.s, test_device());
    };
    const auto mine = std::span(labels).subspan(i * plane, plane);
    const int64_t n = std::count_if(mine.begin(), mine.end(), [](int64_t x) { return x >= 0; });
    const Batch batch{.tensors = {{"tokens", part(tokens)}, {"labels", part(labels)}}};
    step.run(std::span(&batch, 1), std::span(&n, 1), /*first_sample=*/0,
             {.iteration = i + 1,
              .update = i + 1,
              .lr = *oracle.optim.lr,
              .weight_decay = oracle.optim.weight_decay});
    const StepResults results = step.collect();
    ASSERT_NEAR(results.loss_sum / results.tokens, losses[i], tolerance * losses[i])
        << "step " << i;
    ASSERT_NEAR(results.grad_norm, norms[i], 10 * tolerance * norms[i]) << "step " << i;
  }
}

TEST(Oracle, FiftyAdamWStepsFollowPyTorchsCurveTo1e4) {
  for (const char* family : {"gpt2", "llama3", "qwen3", "gemma2", "mixtral", "qwen2_moe", "olmoe",
                             "mla", "deepseek_v3", "qwen3_moe"}) {
    expect_curve_matches(family, DType::f64, 1e-9);
    expect_curve_matches(family, DType::f32, 1e-4);
  }
}

}  // namespace
}  // namespace phx
