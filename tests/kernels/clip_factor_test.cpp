#include "phalanx/kernels/clip_factor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/kernels/elementwise.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

struct Result {
  double norm, factor;
  bool nonfinite, skip;
};

Result clip(StepScalars& scalars, double sum_squares, const kernels::ClipOptions& options) {
  Tensor slot = scalars.slot(Slot::sum_squares);
  kernels::fill(slot, sum_squares);
  kernels::clip_factor(scalars.tensor(), options);
  const auto slots = to_values(scalars.tensor());
  return {slots[int(Slot::grad_norm)], slots[int(Slot::clip_factor)],
          slots[int(Slot::nonfinite)] != 0, slots[int(Slot::skip)] != 0};
}

void expect_clips(Device device) {
  StepScalars scalars(device);
  scalars.begin_step({.loss_scale = 1});
  const Result above = clip(scalars, 25, {.max_norm = 1});
  EXPECT_DOUBLE_EQ(above.norm, 5);
  EXPECT_DOUBLE_EQ(above.factor, 1 / (5 + 1e-6));
  EXPECT_FALSE(above.nonfinite || above.skip);
  EXPECT_DOUBLE_EQ(clip(scalars, 0.25, {.max_norm = 1}).factor, 1);
  EXPECT_DOUBLE_EQ(clip(scalars, 25, {.max_norm = 0}).factor, 1);

  scalars.begin_step({.loss_scale = 8});
  const Result scaled = clip(scalars, 64 * 25, {.max_norm = 1});
  EXPECT_DOUBLE_EQ(scaled.norm, 5);
  EXPECT_DOUBLE_EQ(scaled.factor, 1 / (5 + 1e-6) / 8);
}

void expect_skips(Device device) {
  for (double bad : {double(INFINITY), double(NAN)}) {
    StepScalars scalars(device);
    scalars.begin_step({.loss_scale = 1});
    EXPECT_FALSE(clip(scalars, 1, {}).skip);
    const Result at = clip(scalars, bad, {});
    EXPECT_TRUE(at.nonfinite && at.skip);
    const Result after = clip(scalars, 1, {});
    EXPECT_FALSE(after.nonfinite);
    EXPECT_TRUE(after.skip) << "a stop lasts until the host clears it";
    EXPECT_FALSE(clip(scalars, 1, {.sticky = false}).skip);
    EXPECT_TRUE(clip(scalars, bad, {}).skip);
    scalars.clear_skip();
    EXPECT_FALSE(clip(scalars, 1, {}).skip);
    // Finite gradients of a loss that is not finite are not trusted.
    Tensor loss = scalars.slot(Slot::loss_sum);
    kernels::fill(loss, bad);
    EXPECT_TRUE(clip(scalars, 1, {}).nonfinite);
  }
  StepScalars scalars(device);
  scalars.begin_step({.loss_scale = 1});
  EXPECT_FALSE(clip(scalars, 99, {.skip_above = 10}).skip);
  const Result large = clip(scalars, 101, {.skip_above = 10});
  EXPECT_TRUE(large.skip);
  EXPECT_FALSE(large.nonfinite);
}

TEST(ClipFactor, MatchesHandWorkedValues) { expect_clips(test_device()); }
TEST(ClipFactor, SkipsWhatIsNotFiniteOrTooLarge) { expect_skips(test_device()); }
PHX_CUDA_TEST(ClipFactor, CudaMatchesHandWorkedValues) {
  expect_clips(cuda_test_runtime().device());
}
PHX_CUDA_TEST(ClipFactor, CudaSkipsWhatIsNotFiniteOrTooLarge) {
  expect_skips(cuda_test_runtime().device());
}

}  // namespace
}  // namespace phx
