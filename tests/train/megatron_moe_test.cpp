// A layer with experts against megatron-core's own MoELayer: tests/data/megatron_moe/README.md says
// what the files hold. In f64 only the order of additions differs; f32 is compared with Megatron's
// f64 results, from which its own f32 results are up to 1.4e-6 away (`fp32_distance` in the files).
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "phalanx/base/distance.h"
#include "phalanx/base/option_binder.h"
#include "phalanx/base/options.h"
#include "phalanx/checkpoint/parameter_boxes.h"
#include "phalanx/checkpoint/safetensors.h"
#include "phalanx/core/segment.h"
#include "phalanx/nn/parameter_store.h"
#include "phalanx/ops/rms_norm.h"
#include "phalanx/train/train_fields.h"
#include "phalanx/transformer/moe.h"
#include "phalanx/transformer/transformer_fields.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

std::vector<double> doubles(const SafetensorsFile::Tensor& tensor) {
  const size_t size = tensor.dtype == "F64" ? 8 : 4;
  std::vector<double> result(tensor.bytes.size() / size);
  for (size_t i = 0; i < result.size(); ++i) {
    float narrow = 0;
    std::memcpy(size == 8 ? static_cast<void*>(&result[i]) : &narrow,
                tensor.bytes.data() + i * size, size);
    if (size == 4) result[i] = narrow;
  }
  return result;
}

// A file, and our layer with its weights.
struct Case {
  Case(const std::string& name, DType type)
      : file(std::string(PHX_TEST_DATA) + "/megatron_moe/" + name + ".safetensors"), dtype(type) {
    OptionSet options;
    options.add("Model", config);
    options.add("Run", train);
    std::istringstream flags(file.metadata().at("flags"));
    const std::vector<std::string> words{std::istream_iterator<std::string>(flags), {}};
    const ParseReport report = options.parse(words);
    EXPECT_TRUE(report.ok()) << format_problems(report.problems);
    config.hidden_dropout = 0;
    layer = std::make_unique<MoeLayer>(LayerContext{.config = config, .ranks = {}, .layer = 0});
    store = std::make_unique<ParameterStore>(*layer, test_device(),
                                             StoreOptions{.dtype = dtype, .initialize = false});
    size_t found = 0;
    for (const auto& tensor : file.tensors()) found += tensor.name.starts_with("weight.");
    EXPECT_EQ(found, store->parameters().size()) << "the file has other parameters than the layer";
    for (Parameter* parameter : store->parameters()) {
      const Tensor global = tensor("weight." + parameter->name(), parameter->spec().global_shape);
      Tensor local = parameter->value();
      from_global(*parameter,
                  std::span(static_cast<const std::byte*>(global.raw()), size_t(global.bytes())),
                  local);
    }
  }

  std::vector<double> at(const std::string& name) const { return doubles(file.at(name)); }
  Tensor tensor(const std::string& name, const Shape& shape) const {
    return from_values(at(name), shape, dtype, test_device());
  }
  Shape stream() const {  // [s, b, h]
    return {config.seq_length, train.micro_batch_size, config.hidden_size};
  }
  double aux_scale() const { return std::stod(file.metadata().at("aux_scale")); }

  SafetensorsFile file;
  DType dtype;
  TransformerConfig config;
  TrainConfig train;
  std::unique_ptr<MoeLayer> layer;
  std::unique_ptr<ParameterStore> store;
};

std::vector<double> gradient_of(const Parameter& parameter) {
  const Tensor& local = parameter.gradient();
  Tensor global = empty(parameter.spec().global_shape, local.dtype(), test_device());
  const auto bytes = to_global(parameter, local);
  std::memcpy(global.raw(), bytes.data(), bytes.size());
  return to_values(global);
}

void expect_layer_matches(const std::string& name, DType dtype, double tolerance,
                          const RecomputePolicy& policy = {}) {
  SCOPED_TRACE(name);
  Case given(name, dtype);
  const ForwardContext context{.mean_scale = from_values(std::vector<double>{given.aux_scale()},
                                                         {1}, acc_dtype(dtype), test_device())};
  const RopeTables rope(given.config, given.config.head_dim(), given.config.seq_length, dtype,
                        test_device());
  const Tensor x = given.tensor("x", given.stream()), dy = given.tensor("dy", given.stream());
  given.store->begin_step();
  Segment segment(std::span(&x, 1), [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{given.layer->add_to(in[0], in[0], {rope, context, policy})};
  });
  const Tensor y = segment.outputs()[0];
  const std::vector<Tensor> dx = segment.backward(std::span(&dy, 1));
  given.store->finish_step();
  EXPECT_LE(relative_error(to_values(y), given.at("y")), tolerance) << "output";
  EXPECT_LE(relative_error(to_values(dx[0]), given.at("dx")), tolerance) << "input's gradient";
  for (const Parameter* parameter : given.store->parameters())
    EXPECT_LE(relative_error(gradient_of(*parameter), given.at("grad." + parameter->name())),
              tolerance)
        << "gradient of " << parameter->name();
}

// What the file says of one of the router's losses, 0 if it has none.
double loss_in(const Case& given, const std::string& name) {
  for (const auto& tensor : given.file.tensors())
    if (tensor.name == "loss." + name) return doubles(tensor)[0];
  return 0;
}

void expect_losses_match(const std::string& name) {
  SCOPED_TRACE(name);
  const Case given(name, DType::f64);
  const MoeConfig& moe = given.config.moe;
  const int64_t h = given.config.hidden_size, e = *moe.num_experts;
  const Tensor x = given.tensor("x", {given.stream().numel() / h, h});  // [t, h]
  const Tensor normed = rms_norm(x, given.tensor("weight.pre_mlp_layernorm.weight", {h}),
                                 {.eps = given.config.norm_epsilon});  // [t, h]
  const Tensor logits =
      router_logits(normed, given.tensor("weight.mlp.router.weight", {e, h}));  // [t, e]
  // [e + costs]: what was counted of each expert, then the losses.
  const Tensor tally = zeros({e + kernels::kBalanceCosts}, DType::f64, test_device());
  const RouterScores scores = moe.moe_router_score_function == RouterScoreFunction::sigmoid
                                  ? RouterScores::sigmoid
                                  : RouterScores::softmax_after;
  // Every loss with coefficient 1: Megatron's log has them without theirs.
  route(logits, {}, {.topk = moe.moe_router_topk, .scores = scores},
        {.batch = 1, .sample = 1, .z = 1},
        {.samples = given.train.micro_batch_size,
         .scale = from_values(std::vector<double>{1}, {1}, DType::f64, test_device()),
         .tally = tally});
  const auto counted = to_values(tally);
  const std::span found = std::span(counted).subspan(size_t(e));
  const std::pair<const char*, double> losses[] = {{"load_balancing_loss", found[0]},
                                                   {"seq_load_balancing_loss", found[1]},
                                                   {"z_loss", found[3]}};
  int compared = 0;
  for (const auto& [loss, value] : losses) {
    const double theirs = loss_in(given, loss);
    if (theirs == 0) continue;
    EXPECT_NEAR(value, theirs, 1e-13 * theirs) << loss;
    ++compared;
  }
  EXPECT_GT(compared, 0) << "the file has no loss";
}

const char* const kChoices[] = {"softmax_after", "softmax_before", "softmax_before_top1",
                                "sigmoid",       "sigmoid_top1",   "scaled_after",
                                "scaled_before", "groups_sigmoid", "groups_after",
                                "groups_before", "deepseek"};
const char* const kLosses[] = {"aux_after",     "aux_before",      "aux_sigmoid", "aux_groups",
                               "seq_aux_after", "seq_aux_sigmoid", "z_loss",      "z_loss_sigmoid",
                               "all_losses",    "deepseek"};
const char* const kCapacities[] = {"capacity_probs",        "capacity_position",
                                   "capacity_probs_padded", "capacity_position_padded",
                                   "capacity_sigmoid",      "capacity_ample"};
const char* const kExperts[] = {"shared", "shared_gate", "squared_relu", "gelu"};

constexpr double kOrderOfSums = 1e-13, kSinglePrecision = 1e-5;

TEST(MegatronMoe, EveryKindOfChoiceGivesMegatronsOutputsAndGradients) {
  for (const char* name : kChoices) expect_layer_matches(name, DType::f64, kOrderOfSums);
}

TEST(MegatronMoe, BalancingLossesAreMegatrons) {
  for (const char* name : kLosses) expect_losses_match(name);
}

TEST(MegatronMoe, BalancingLossesEnterTheGradientsAsMegatrons) {
  for (const char* name : kLosses) expect_layer_matches(name, DType::f64, kOrderOfSums);
}

TEST(MegatronMoe, ExpertsWithLittleRoomDropMegatronsTokens) {
  for (const char* name : kCapacities) expect_layer_matches(name, DType::f64, kOrderOfSums);
}

TEST(MegatronMoe, SharedExpertsAndActivationsAreMegatrons) {
  for (const char* name : kExperts) expect_layer_matches(name, DType::f64, kOrderOfSums);
}

TEST(MegatronMoe, RecomputationChangesNothing) {
  for (const char* name : {"deepseek", "shared_gate"})
    expect_layer_matches(name, DType::f64, kOrderOfSums,
                         {.expert_activation = true, .shared_expert = true});
}

TEST(MegatronMoe, SinglePrecisionIsCloseToMegatronsDoublePrecision) {
  using Names = std::span<const char* const>;
  for (const Names names : {Names(kChoices), Names(kLosses), Names(kCapacities), Names(kExperts)})
    for (const char* name : names) expect_layer_matches(name, DType::f32, kSinglePrecision);
}

}  // namespace
}  // namespace phx
