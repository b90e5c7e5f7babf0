// A layer with experts against megatron-core's own MoELayer: tests/data/megatron_moe/README.md says
// what the files hold. In f64 only the order of additions differs; f32 is compared with Megatron's
// f64 results, from which its own f32 results are up to 1.4e-6 away (`fp32_distance` in the files).
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
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
    buffers = std::make_unique<ParameterStore>(
        *layer, test_device(), StoreOptions{.dtype = acc_dtype(dtype), .buffers = true});
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
  int64_t micro_batches() const {  // of the one step that a file holds
    return int64_t(at("x").size()) / stream().numel();
  }
  // Of a tensor with a leading dimension of micro-batches.
  Tensor micro_batch(const std::string& name, int64_t m) const {
    return tensor(name, {micro_batches(), stream().numel()}).rows(m, 1).reshape(stream());
  }
  std::vector<double> micro_batch_at(const std::string& name, int64_t m) const {
    const std::vector<double> all = at(name);
    const int64_t size = stream().numel();
    return {all.begin() + m * size, all.begin() + (m + 1) * size};
  }
  void set_buffer(const std::string& name, const std::vector<double>& values) const {
    Tensor buffer = buffers->find("mlp.router." + name).value();
    copy(from_values(values, buffer.shape(), buffer.dtype(), test_device()), buffer);
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
  std::unique_ptr<ParameterStore> store, buffers;
};

std::vector<double> gradient_of(const Parameter& parameter) {
  const Tensor& local = parameter.gradient();
  Tensor global = empty(parameter.spec().global_shape, local.dtype(), test_device());
  const auto bytes = to_global(parameter, local);
  std::memcpy(global.raw(), bytes.data(), bytes.size());
  return to_values(global);
}

// Called before each micro-batch.
using BeforeMicroBatch = std::function<void(const Case& given, int64_t micro_batch)>;

struct LayerCheck {
  DType dtype = DType::f64;
  double tolerance = 1e-13;  // only the order of sums differs
  RecomputePolicy policy = {};
  BeforeMicroBatch before = {};
};

void expect_layer_matches(const Case& given, const LayerCheck& check, const Tensor& tally = {}) {
  const ForwardContext context{
      .mean_scale = from_values(std::vector<double>{given.aux_scale()}, {1}, acc_dtype(check.dtype),
                                test_device()),
      .router_tally = tally};
  const RopeTables rope(given.config, given.config.head_dim(), given.config.seq_length, check.dtype,
                        test_device());
  given.store->begin_step();
  for (int64_t m = 0; m < given.micro_batches(); ++m) {
    SCOPED_TRACE("micro-batch " + std::to_string(m));
    if (check.before) check.before(given, m);
    const Tensor x = given.micro_batch("x", m), dy = given.micro_batch("dy", m);
    Segment segment(std::span(&x, 1), [&](std::span<const Tensor> in) {
      return std::vector<Tensor>{given.layer->add_to(in[0], in[0], {rope, context, check.policy})};
    });
    const Tensor y = segment.outputs()[0];
    const std::vector<Tensor> dx = segment.backward(std::span(&dy, 1));
    EXPECT_LE(relative_error(to_values(y), given.micro_batch_at("y", m)), check.tolerance)
        << "output";
    EXPECT_LE(relative_error(to_values(dx[0]), given.micro_batch_at("dx", m)), check.tolerance)
        << "input's gradient";
  }
  given.store->finish_step();
  for (const Parameter* parameter : given.store->parameters())
    EXPECT_LE(relative_error(gradient_of(*parameter), given.at("grad." + parameter->name())),
              check.tolerance)
        << "gradient of " << parameter->name();
}

void expect_layer_matches(const std::string& name, const LayerCheck& check) {
  SCOPED_TRACE(name);
  expect_layer_matches(Case(name, check.dtype), check);
}

// What the file says of one of the router's losses, 0 if it has none.
double loss_in(const Case& given, const std::string& name, int64_t micro_batch = 0) {
  for (const auto& tensor : given.file.tensors())
    if (tensor.name == "loss." + name) return doubles(tensor).at(size_t(micro_batch));
  return 0;
}

// Of a micro-batch: how many tokens have each expert among their best, then the losses, each with
// coefficient 1: Megatron's log has them without theirs.
struct Balance {
  std::vector<double> counts, losses;
};
Balance balance_of(const Case& given, int64_t micro_batch, const std::vector<double>& loads = {}) {
  const MoeConfig& moe = given.config.moe;
  const int64_t h = given.config.hidden_size, e = *moe.num_experts;
  const Tensor x =
      given.micro_batch("x", micro_batch).reshape({given.stream().numel() / h, h});  // [t, h]
  const Tensor normed = rms_norm(x, given.tensor("weight.pre_mlp_layernorm.weight", {h}),
                                 {.eps = given.config.norm_epsilon});  // [t, h]
  const Tensor logits =
      router_logits(normed, given.tensor("weight.mlp.router.weight", {e, h}));  // [t, e]
  const Tensor tally = zeros({e + kernels::kBalanceCosts}, DType::f64, test_device());
  const RouterScores scores = moe.moe_router_score_function == RouterScoreFunction::sigmoid
                                  ? RouterScores::sigmoid
                                  : RouterScores::softmax_after;
  route(logits, {}, {.topk = moe.moe_router_topk, .scores = scores},
        {.batch = 1, .sample = 1, .past = 1, .z = 1},
        {.samples = given.train.micro_batch_size,
         .scale = from_values(std::vector<double>{1}, {1}, DType::f64, test_device()),
         .loads = loads.empty() ? Tensor() : from_values(loads, {e}, DType::f64, test_device()),
         .tally = tally});
  const std::vector<double> all = to_values(tally);
  return {.counts = {all.begin(), all.begin() + e}, .losses = {all.begin() + e, all.end()}};
}

void expect_losses_match(const std::string& name) {
  SCOPED_TRACE(name);
  const Case given(name, DType::f64);
  int compared = 0;
  for (int64_t m = 0; m < given.micro_batches(); ++m) {
    const std::vector<double> found = balance_of(given, m).losses;
    const std::pair<const char*, double> losses[] = {{"load_balancing_loss", found[0]},
                                                     {"seq_load_balancing_loss", found[1]},
                                                     {"z_loss", found[3]}};
    for (const auto& [loss, value] : losses) {
      const double theirs = loss_in(given, loss, m);
      if (theirs == 0) continue;
      EXPECT_NEAR(value, theirs, 1e-13 * theirs) << loss << " of micro-batch " << m;
      ++compared;
    }
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

TEST(MegatronMoe, EveryKindOfChoiceGivesMegatronsOutputsAndGradients) {
  for (const char* name : kChoices) expect_layer_matches(name, {});
}

TEST(MegatronMoe, BalancingLossesAreMegatrons) {
  for (const char* name : kLosses) expect_losses_match(name);
  expect_losses_match("expert_bias");
}

TEST(MegatronMoe, BalancingLossesEnterTheGradientsAsMegatrons) {
  for (const char* name : kLosses) expect_layer_matches(name, {});
}

TEST(MegatronMoe, ExpertsWithLittleRoomDropMegatronsTokens) {
  for (const char* name : kCapacities) expect_layer_matches(name, {});
}

TEST(MegatronMoe, SharedExpertsAndActivationsAreMegatrons) {
  for (const char* name : kExperts) expect_layer_matches(name, {});
}

// Two micro-batches, then the end of the step.
TEST(MegatronMoe, BiasesOfExpertsChooseAndMoveAsMegatrons) {
  for (const char* name : {"expert_bias", "expert_bias_groups"}) {
    SCOPED_TRACE(name);
    const Case given(name, DType::f64);
    const int64_t e = *given.config.moe.num_experts;
    given.set_buffer("expert_bias", given.at("bias"));
    const Tensor tally = zeros({1, kernels::RouterTally::width(e)}, DType::f64, test_device());
    expect_layer_matches(given, {}, tally);
    const kernels::RouterTally counted{.row = tally.reshape({tally.numel()}), .experts = e};
    EXPECT_EQ(to_values(counted.chosen()), given.at("tokens_per_expert"));
    const Tensor bias = given.buffers->find("mlp.router.expert_bias").value();
    EXPECT_EQ(to_values(bias), given.at("bias")) << "it moved before the end of the step";
    given.layer->end_step({.tally = tally, .skip = zeros({1}, DType::f64, test_device())});
    EXPECT_LE(relative_error(to_values(bias), given.at("bias_after")), 1e-15);
  }
}

// Megatron's loads are those of the step's micro-batches so far, this one included; ours are those
// of the step before (docs/experts.md). With Megatron's as the loads everything else is the same.
TEST(MegatronMoe, TheLossOverTheGlobalBatchIsMegatronsWithTheLoadsThatItTakes) {
  for (const char* name : {"global_aux", "global_aux_sigmoid"}) {
    SCOPED_TRACE(name);
    std::vector<double> loads;
    const auto add_counts = [&](const Case& given, int64_t m) {
      const std::vector<double> counts = balance_of(given, m).counts;
      loads.resize(counts.size());
      for (size_t i = 0; i < counts.size(); ++i) loads[i] += counts[i];
      const double theirs = loss_in(given, "global_load_balancing_loss", m);
      EXPECT_NEAR(balance_of(given, m, loads).losses[2], theirs, 1e-13 * theirs);
      given.set_buffer("global_tokens_per_expert", loads);
    };
    expect_layer_matches(name, {.before = add_counts});
    const Case given(name, DType::f64);
    EXPECT_EQ(given.micro_batches(), 3);
    // The first one has no others before it: there our own rule is the same.
    const double first = loss_in(given, "global_load_balancing_loss", 0);
    EXPECT_NEAR(balance_of(given, 0).losses[2], first, 1e-13 * first);
  }
}

TEST(MegatronMoe, RecomputationChangesNothing) {
  for (const char* name : {"deepseek", "shared_gate"})
    expect_layer_matches(name, {.policy = {.expert_activation = true, .shared_expert = true}});
}

TEST(MegatronMoe, SinglePrecisionIsCloseToMegatronsDoublePrecision) {
  using Names = std::span<const char* const>;
  for (const Names names : {Names(kChoices), Names(kLosses), Names(kCapacities), Names(kExperts)})
    for (const char* name : names)
      expect_layer_matches(name, {.dtype = DType::f32, .tolerance = 1e-5});
}

}  // namespace
}  // namespace phx
