// The optimizer by itself, on a toy model whose gradients the test writes.
#include "phalanx/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

class Toy : public Module {
 public:
  Toy() {
    add_parameter("weight", weight);
    add_parameter("bias", bias);
  }
  Parameter weight{whole({30, 20}, Init::normal(1))};
  Parameter bias{whole({20}, Init::normal(1))};
};

// A model with an optimizer for `owned` (empty: all), and steps of it.
struct ToyRun {
  explicit ToyRun(DType dtype, const OptimizerConfig& config = plain(),
                  std::vector<FlatRange> owned = {})
      : config(config),
        store(model, test_device(), {.dtype = dtype, .seed = 5}),
        optimizer(store, config, std::move(owned), /*seed=*/7),
        scalars(test_device()) {}

  // Without decay and clipping.
  static OptimizerConfig plain() { return {.clip_grad = 0}; }

  void fill(Tensor& x, const std::function<double(int64_t)>& f) {
    std::vector<double> values;
    for (int64_t i = 0; i < x.numel(); ++i) values.push_back(f(i));
    copy(from_values(values, x.shape(), x.dtype(), test_device()), x);
  }
  StepResults step(int64_t update, const std::function<double(int64_t)>& gradient,
                   const StepValues& given = {.lr = 0.1}, bool sticky = true) {
    fill(store.gradients(), gradient);
    StepValues values = step_values(update, config.adam_beta1, config.adam_beta2, /*tokens=*/1);
    values.lr = values.decoupled_lr = given.lr;
    values.weight_decay = given.weight_decay;
    values.loss_scale = given.loss_scale;
    scalars.begin_step(values);
    const FlatRange all = store.all();
    optimizer.sum_squares(scalars, std::span(&all, 1));
    optimizer.update(scalars, sticky);
    scalars.publish();
    return scalars.collect();
  }
  std::vector<std::vector<double>> everything() const {
    std::vector<std::vector<double>> all = {to_values(store.weights())};
    for (const OptimizerState& state : optimizer.states())
      if (state.flat.dtype() != DType::u16) all.push_back(to_values(state.flat));
    return all;
  }

  OptimizerConfig config;
  Toy model;
  ParameterStore store;
  Optimizer optimizer;
  StepScalars scalars;
};

double at(const Tensor& x, int64_t i) { return to_values(x)[size_t(i)]; }

// w = 1, g = 0.5, then -0.25; lr 0.1, decay 0.01, betas 0.9 and 0.999.
//   m 0.05, v 0.00025: m^ 0.5, v^ 0.25          w = 1 - 0.001 - 0.1 * 0.5 / 0.5 = 0.899
//   m 0.02, v 0.00031225: m^ 0.02 / 0.19, v^ 0.00031225 / 0.001999
//                                               w = 0.899 (1 - 0.001) - 0.1 m^ / sqrt(v^)
TEST(Optimizer, TwoStepsOfAdamWByHand) {
  ToyRun run(DType::f64, {.clip_grad = 0, .adam_eps = 1e-30});
  run.fill(run.store.weights(), [](int64_t) { return 1; });
  const StepValues values{.lr = 0.1, .weight_decay = 0.01};
  run.step(
      1, [](int64_t) { return 0.5; }, values);
  EXPECT_NEAR(at(run.model.weight.value(), 7), 0.899, 1e-15);
  EXPECT_NEAR(at(run.model.bias.value(), 7), 0.9, 1e-15) << "a bias does not decay";
  run.step(
      2, [](int64_t) { return -0.25; }, values);
  const double change = 0.1 * (0.02 / 0.19) / std::sqrt(0.00031225 / 0.001999);
  EXPECT_NEAR(at(run.model.weight.value(), 7), 0.899 * 0.999 - change, 1e-15);
  EXPECT_NEAR(at(run.model.bias.value(), 7), 0.9 - change, 1e-15);
  const std::vector<OptimizerState> states = run.optimizer.states();
  ASSERT_GE(states.size(), 2u);
  EXPECT_STREQ(states[0].name, "exp_avg");
  EXPECT_NEAR(at(states[0].flat, 3), 0.02, 1e-16);
  EXPECT_STREQ(states[1].name, "exp_avg_sq");
  EXPECT_NEAR(at(states[1].flat, 3), 0.00031225, 1e-18);
}

TEST(Optimizer, EpsStandsBesideTheRoot) {
  ToyRun run(DType::f64, {.clip_grad = 0, .adam_eps = 0.5});
  run.fill(run.store.weights(), [](int64_t) { return 1; });
  run.step(1, [](int64_t) { return 0.5; });
  EXPECT_NEAR(at(run.model.weight.value(), 0), 1 - 0.1 * 0.5 / (0.5 + 0.5), 1e-15);
}

// Adam forgets a factor on all gradients, its states do not.
TEST(Optimizer, ClipsByTheWholeNormAndTakesTheLossScaleOut) {
  ToyRun run(DType::f64, {.clip_grad = 1});
  const double count = double(run.store.all().count);
  const double scale = 8;
  const StepResults results =
      run.step(1, [&](int64_t) { return scale * 2; }, {.lr = 0.1, .loss_scale = scale});
  const double norm = 2 * std::sqrt(count);
  EXPECT_NEAR(results.grad_norm, norm, 1e-12 * norm);
  // Megatron's coefficient: max_norm / (norm + 1e-6).
  EXPECT_NEAR(at(run.optimizer.states()[0].flat, 0), 0.1 * 2 / (norm + 1e-6), 1e-12);
}

// A rank that owns some ranges computes there what one that owns all does, and leaves the rest.
TEST(Optimizer, PiecesEqualTheWhole) {
  const std::vector<std::vector<FlatRange>> shards = {{{0, 256}, {640, 64}},
                                                      {{256, 384}, {704, 64}}};
  const auto gradient = [](int64_t i) { return std::sin(double(i)); };
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(dtype));
    ToyRun all(dtype);
    ASSERT_EQ(all.store.all().count, 768);
    const std::vector<double> before = to_values(all.store.weights());
    for (int64_t i = 1; i <= 3; ++i) all.step(i, gradient, {.lr = 0.1, .weight_decay = 0.01});
    for (const auto& owned : shards) {
      ToyRun piece(dtype, ToyRun::plain(), owned);
      for (int64_t i = 1; i <= 3; ++i) piece.step(i, gradient, {.lr = 0.1, .weight_decay = 0.01});
      const FlatRange everything = all.store.all();
      for (const FlatRange& range : owned)
        EXPECT_EQ(to_values(part(piece.store.weights(), range)),
                  to_values(part(all.store.weights(), range)));
      const std::vector<double> own = to_values(piece.store.weights());
      for (int64_t i = 0; i < everything.count; ++i) {
        bool owns = false;
        for (const FlatRange& range : owned) owns |= i >= range.offset && i < range.end();
        if (!owns) {
          ASSERT_EQ(own[size_t(i)], before[size_t(i)]) << i;
        }
      }
      // The states of the pieces, end to end.
      const auto states = piece.optimizer.states(), whole_states = all.optimizer.states();
      ASSERT_EQ(states.size(), whole_states.size());
      for (size_t s = 0; s < states.size(); ++s) {
        EXPECT_EQ(states[s].ranges, owned);
        int64_t at = 0;
        for (const FlatRange& range : owned) {
          if (states[s].flat.dtype() != DType::u16) {
            EXPECT_EQ(to_values(states[s].flat.rows(at, range.count)),
                      to_values(part(whole_states[s].flat, range)))
                << states[s].name;
          }
          at += range.count;
        }
      }
    }
  }
}

TEST(Optimizer, AStepWhoseNormIsNotFiniteChangesNothing) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const DType dtype : {DType::f64, DType::bf16}) {
      ToyRun run(dtype);
      run.step(1, [](int64_t i) { return std::cos(double(i)); });
      const auto before = run.everything();
      const StepResults results = run.step(
          2, [&](int64_t i) { return i == 33 ? bad : 1; }, {.lr = 0.1}, /*sticky=*/false);
      EXPECT_TRUE(results.nonfinite);
      EXPECT_TRUE(results.skipped);
      EXPECT_EQ(run.everything(), before);
      EXPECT_FALSE(run.step(
                          2, [](int64_t) { return 1; }, {.lr = 0.1}, false)
                       .skipped);
      EXPECT_NE(run.everything(), before);
    }
}

TEST(Optimizer, AStickySkipHoldsUntilTheHostClearsIt) {
  ToyRun run(DType::f64);
  const auto before = run.everything();
  run.step(1, [](int64_t) { return std::numeric_limits<double>::infinity(); });
  const StepResults next = run.step(2, [](int64_t) { return 1; });
  EXPECT_FALSE(next.nonfinite);
  EXPECT_TRUE(next.skipped);
  EXPECT_EQ(run.everything(), before);
  run.scalars.clear_skip();
  EXPECT_FALSE(run.step(1, [](int64_t) { return 1; }).skipped);
  EXPECT_NE(run.everything(), before);
}

}  // namespace
}  // namespace phx
