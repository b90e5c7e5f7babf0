// The optimizer by itself, on a toy model whose gradients the test writes.
#include "phalanx/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "optim/toy_run.h"
#include "phalanx/kernels/elementwise.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

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
  EXPECT_EQ(states[0].name, "exp_avg");
  EXPECT_NEAR(at(states[0].flat, 3), 0.02, 1e-16);
  EXPECT_EQ(states[1].name, "exp_avg_sq");
  EXPECT_NEAR(at(states[1].flat, 3), 0.00031225, 1e-18);
}

// w = 1, g = 0.5, then -0.25; lr 0.1, decay 0.01, momentum 0.9.
//   b = 0.5 + 0.01 = 0.51              w = 1 - 0.051 = 0.949
//   b = 0.9 * 0.51 - 0.25 + 0.00949    w = 0.949 - 0.1 b
TEST(Optimizer, TwoStepsOfSgdByHand) {
  OptimizerConfig config{.clip_grad = 0};
  config.optimizer = "sgd";
  ToyRun run(DType::f64, config);
  run.fill(run.store.weights(), [](int64_t) { return 1; });
  const StepValues values{.lr = 0.1, .weight_decay = 0.01};
  run.step(
      1, [](int64_t) { return 0.5; }, values);
  EXPECT_NEAR(at(run.model.weight.value(), 7), 0.949, 1e-15);
  EXPECT_NEAR(at(run.model.bias.value(), 7), 0.95, 1e-15) << "a bias does not decay";
  run.step(
      2, [](int64_t) { return -0.25; }, values);
  const double b = 0.9 * 0.51 - 0.25 + 0.00949;
  EXPECT_NEAR(at(run.model.weight.value(), 7), 0.949 - 0.1 * b, 1e-15);
  const std::vector<OptimizerState> states = run.optimizer.states();
  ASSERT_EQ(states.size(), 1u) << "one state, and no master beside doubles";
  EXPECT_EQ(states[0].name, "momentum_buffer");
  EXPECT_NEAR(at(states[0].flat, 7), b, 1e-15);
}

// A rule that a program brings: the sign of the gradient, with an option of its own.
struct SignOptions {
  double strength = 2.0;
  template <class Field>
  void each(Field&& field) {
    field("sign-strength", strength, "how large a step is");
  }
};

TEST(Optimizer, ARuleOfAProgramsOwnOwnsItsStates) {
  const UpdateRule sign{.name = "sign",
                        .help = "by the sign",
                        .states =
                            [](const OptimizerConfig&, DType acc) {
                              return std::vector<RuleState>{{"steps", acc}};
                            },
                        .update =
                            [](const UpdateCall& call, const OwnOptions& options) {
                              const double strength = options.get<SignOptions>().strength;
                              double* w = call.weight.data<double>();
                              double* steps = call.states[0].data<double>();
                              const double* g = call.grad.data<double>();
                              for (int64_t i = 0; i < call.grad.numel(); ++i) {
                                w[i] -= strength * (g[i] > 0 ? 1 : -1);
                                steps[i] += 1;
                              }
                            },
                        .options = OwnOptions::of<SignOptions>()};
  Toy model;
  ParameterStore store(model, test_device(), {.dtype = DType::f64, .seed = 5});
  OptimizerConfig config{.clip_grad = 0};
  config.optimizer = "sign";
  EXPECT_THROW(Optimizer(store, config), Error) << "not among the standard rules";
  Optimizer optimizer(store, config, {}, 0, {sign});
  const double before = at(model.weight.value(), 4);
  Tensor gradients = store.gradients();
  kernels::fill(gradients, 3.0);
  StepScalars scalars(test_device());
  scalars.begin_step(step_values(1, 0.9, 0.999, 1));
  optimizer.update(scalars, /*sticky=*/true);
  EXPECT_NEAR(at(model.weight.value(), 4), before - 2, 1e-15);
  ASSERT_EQ(optimizer.states().size(), 1u);
  EXPECT_EQ(optimizer.states()[0].name, "steps");
  EXPECT_EQ(at(optimizer.states()[0].flat, 4), 1);
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
        EXPECT_EQ(to_values(piece.store.weights(range)), to_values(all.store.weights(range)));
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
