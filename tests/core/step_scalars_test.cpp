#include "phalanx/core/step_scalars.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

void expect_carries_values(Device device) {
  StepScalars scalars(device);
  StepValues values = step_values(3, 0.9, 0.95, 8);
  EXPECT_NEAR(values.bias_correction1, 1 - 0.9 * 0.9 * 0.9, 1e-15);
  EXPECT_NEAR(values.bias_correction2, 1 - 0.95 * 0.95 * 0.95, 1e-15);
  EXPECT_EQ(values.inverse_tokens, 0.125);
  values.lr = 0.25;
  scalars.begin_step(values);
  EXPECT_EQ(to_values(scalars.slot(Slot::lr))[0], 0.25);
  EXPECT_EQ(to_values(scalars.slot(Slot::step))[0], 3);
  EXPECT_EQ(to_values(scalars.slot(Slot::inverse_tokens))[0], 0.125);
  EXPECT_EQ(to_values(scalars.slot(Slot::skip))[0], 0);

  Tensor tokens = scalars.slot(Slot::tokens);  // as an all-reduce over two ranks would leave it
  const double both = 16;
  copy_from_host(tokens, &both);
  scalars.invert_tokens();
  EXPECT_EQ(to_values(scalars.slot(Slot::inverse_tokens))[0], 1.0 / 16);
  const double none = 0;
  copy_from_host(tokens, &none);
  scalars.invert_tokens();
  EXPECT_EQ(to_values(scalars.slot(Slot::inverse_tokens))[0], 1.0);
}

void expect_collects_in_order(Device device) {
  StepScalars scalars(device);
  for (int step = 1; step <= 4; ++step) {
    StepValues values = step_values(step, 0.9, 0.95, 10.0 * step);
    values.lr = step / 8.0;
    scalars.begin_step(values);
    scalars.publish();
    if (step == 1) continue;  // one step behind
    const StepResults last = scalars.collect();
    EXPECT_EQ(last.step, step - 1);
    EXPECT_EQ(last.lr, (step - 1) / 8.0);
    EXPECT_EQ(last.tokens, 10.0 * (step - 1));
    EXPECT_FALSE(last.skipped);
  }
  EXPECT_EQ(scalars.published(), 1);
}

TEST(StepScalars, CarryTheHostsValues) { expect_carries_values(test_device()); }
TEST(StepScalars, AreCollectedInOrderAStepBehind) { expect_collects_in_order(test_device()); }

TEST(StepScalars, RefuseAThirdCopy) {
  const std::string message = error_of([] {
    StepScalars scalars(test_device());
    for (int i = 0; i < 3; ++i) scalars.publish();
  });
  EXPECT_EQ(message, "step scalars: two steps are published already; collect one of them first");
}

PHX_CUDA_TEST(StepScalars, CarryTheHostsValuesOnCuda) {
  expect_carries_values(cuda_test_runtime().device());
}
PHX_CUDA_TEST(StepScalars, AreCollectedInOrderOnCuda) {
  expect_collects_in_order(cuda_test_runtime().device());
}

}  // namespace
}  // namespace phx
