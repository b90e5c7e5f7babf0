#include "phalanx/optim/update_rule.h"

#include <gtest/gtest.h>

#include "phalanx/kernels/elementwise.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

const UpdateRule& rule_called(const std::string& name) {
  static const std::vector<UpdateRule> rules = standard_update_rules();
  for (const UpdateRule& rule : rules)
    if (rule.name == name) return rule;
  throw_error("no rule " + name);
}

TEST(UpdateRule, StatesHaveMegatronsNamesAndTheTypesThatAreAskedFor) {
  OptimizerConfig config;
  config.exp_avg_sq_dtype = StateDType::bf16;
  const std::vector<RuleState> adam = rule_called("adam").states(config, DType::f32);
  ASSERT_EQ(adam.size(), 2u);
  EXPECT_EQ(adam[0].name, "exp_avg");
  EXPECT_EQ(adam[0].dtype, DType::f32);
  EXPECT_EQ(adam[1].name, "exp_avg_sq");
  EXPECT_EQ(adam[1].dtype, DType::bf16);
  const std::vector<RuleState> sgd = rule_called("sgd").states(config, DType::f64);
  ASSERT_EQ(sgd.size(), 1u);
  EXPECT_EQ(sgd[0].name, "momentum_buffer");
  EXPECT_EQ(sgd[0].dtype, DType::f64);
}

Tensor one(double value) {
  return from_values(std::vector<double>{value}, {1}, DType::f64, test_device());
}

// The weight 1 after one step with gradient 0.5 and decay 0.01; learning rates 0.1 and 0.2.
double stepped(const std::string& rule, const OptimizerConfig& config, bool decays, Slot lr) {
  StepScalars scalars(test_device());
  StepValues values = step_values(1, config.adam_beta1, config.adam_beta2, /*tokens=*/1);
  values.lr = 0.1;
  values.decoupled_lr = 0.2;
  values.weight_decay = 0.01;
  scalars.begin_step(values);
  Tensor clip = scalars.slot(Slot::clip_factor);
  kernels::fill(clip, 1.0);
  UpdateCall call{.grad = one(0.5),
                  .scalars = scalars.tensor(),
                  .weight = one(1),
                  .master = {},
                  .states = {},
                  .config = config,
                  .decays = decays,
                  .lr = lr};
  for (size_t i = 0; i < rule_called(rule).states(config, DType::f64).size(); ++i)
    call.states.push_back(one(0));
  rule_called(rule).update(call, rule_called(rule).options);
  return to_values(call.weight)[0];
}

// Adam's first step is the learning rate itself; decay takes lr * 0.01 of the weight.
TEST(UpdateRule, DecayIsForMatricesAndTheLearningRateIsTheCallsSlot) {
  OptimizerConfig config;
  config.adam_eps = 1e-30;
  EXPECT_NEAR(stepped("adam", config, false, Slot::lr), 1 - 0.1, 1e-15);
  EXPECT_NEAR(stepped("adam", config, true, Slot::lr), 1 - 0.001 - 0.1, 1e-15);
  EXPECT_NEAR(stepped("adam", config, false, Slot::decoupled_lr), 1 - 0.2, 1e-15);
  EXPECT_NEAR(stepped("sgd", config, false, Slot::lr), 1 - 0.05, 1e-15);
  EXPECT_NEAR(stepped("sgd", config, true, Slot::lr), 1 - 0.1 * (0.5 + 0.01), 1e-15);
  EXPECT_NEAR(stepped("sgd", config, true, Slot::decoupled_lr), 1 - 0.2 * (0.5 + 0.01), 1e-15);
}

TEST(UpdateRule, AdamTakesItsEpsFromTheConfig) {
  OptimizerConfig config;
  config.adam_eps = 0.5;  // beside the root of the corrected square, which is 0.5
  EXPECT_NEAR(stepped("adam", config, false, Slot::lr), 1 - 0.05, 1e-15);
}

}  // namespace
}  // namespace phx
