#include "phalanx/kernels/sgd.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/kernels/elementwise.h"
#include "phalanx/kernels/master_split.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using kernels::SgdBuffers;

StepScalars scalars_of(double lr, double weight_decay, double clip_factor, bool skip = false,
                       Device device = test_device()) {
  StepScalars scalars(device);
  StepValues host = step_values(1, 0.9, 0.999, 1);
  host.lr = lr;
  host.weight_decay = weight_decay;
  scalars.begin_step(host);
  Tensor factor = scalars.slot(Slot::clip_factor), skips = scalars.slot(Slot::skip);
  kernels::fill(factor, clip_factor);
  kernels::fill(skips, skip ? 1.0 : 0.0);
  return scalars;
}

Tensor values(const std::vector<double>& x, DType dtype) {
  return from_values(x, {int64_t(x.size())}, dtype, test_device());
}

// g = 6 * 0.5 + 0.25 * 2 = 3.5; b = 0.9 * 10 + 3.5 = 12.5; p = 2 - 0.1 * 12.5 = 0.75.
TEST(Sgd, MatchesHandWorkedValues) {
  SgdBuffers of{
      .weight = values({2}, DType::f64), .master = {}, .momentum = values({10}, DType::f64)};
  kernels::sgd(values({6}, DType::f64), scalars_of(0.1, 0.25, 0.5).tensor(), {}, of);
  EXPECT_NEAR(to_values(of.weight)[0], 0.75, 1e-15);
  EXPECT_NEAR(to_values(of.momentum)[0], 12.5, 1e-14);
}

TEST(Sgd, WithoutDecayAndMomentumItIsTheGradient) {
  SgdBuffers of{
      .weight = values({2}, DType::f64), .master = {}, .momentum = values({10}, DType::f64)};
  kernels::sgd(values({6}, DType::f64), scalars_of(0.1, 0.25, 0.5).tensor(),
               {.momentum = 0, .decay = 0}, of);
  EXPECT_NEAR(to_values(of.weight)[0], 2 - 0.1 * 3, 1e-15);
}

TEST(Sgd, ASkippedStepTouchesNothing) {
  SgdBuffers of{
      .weight = values({2}, DType::f64), .master = {}, .momentum = values({10}, DType::f64)};
  kernels::sgd(values({6}, DType::f64), scalars_of(0.1, 0.25, 0.5, /*skip=*/true).tensor(), {}, of);
  EXPECT_EQ(to_values(of.weight)[0], 2);
  EXPECT_EQ(to_values(of.momentum)[0], 10);
}

// Steps far below half a unit of bf16 add up in the remainder.
TEST(Sgd, MastersOf16BitWeightsKeepSmallSteps) {
  const int64_t n = 37;
  for (const DType master : {DType::u16, DType::f32}) {
    SgdBuffers of{.weight = values(std::vector<double>(n, 1.0), DType::bf16),
                  .master = {},
                  .momentum = values(std::vector<double>(n, 0.0), DType::f32)};
    of.master = zeros({n}, master, test_device());
    if (master == DType::f32) kernels::fill(of.master, 1.0);
    const Tensor grad = values(std::vector<double>(n, 1.0), DType::bf16);
    for (int i = 0; i < 100; ++i)
      kernels::sgd(grad, scalars_of(1e-4, 0, 1).tensor(), {.momentum = 0}, of);
    EXPECT_NEAR(to_values(of.weight)[n - 1], 0.99, 0.004) << master;
  }
}

TEST(Sgd, RefusesAMomentumOf16Bits) {
  SgdBuffers of{
      .weight = values({2}, DType::f32), .master = {}, .momentum = values({1}, DType::bf16)};
  EXPECT_THROW(kernels::sgd(values({6}, DType::f32), scalars_of(0.1, 0, 1).tensor(), {}, of),
               Error);
}

PHX_CUDA_TEST(Sgd, CudaEqualsCpu) {
  const Device gpu = cuda_test_runtime().device();
  const int64_t n = 1003;
  const Tensor start = randn({n}, Seed{1}, DType::f32);
  for (const DType weight : {DType::f32, DType::bf16}) {
    const auto run = [&](Device device) {
      SgdBuffers of{.weight = empty({n}, weight, device),
                    .master = {},
                    .momentum = zeros({n}, DType::f32, device)};
      Tensor wide = to_device(start, device);
      kernels::cast(wide, of.weight);
      if (weight == DType::bf16) {
        of.master = empty({n}, DType::u16, device);
        kernels::split_master(wide, of.weight, of.master);
      }
      for (uint64_t t = 1; t <= 3; ++t)
        kernels::sgd(to_device(randn({n}, Seed{t}, DType::f32), device),
                     scalars_of(0.01, 0.1, 0.5, false, device).tensor(), {}, of);
      return to_values(of.weight);
    };
    const auto a = run(test_device()), b = run(gpu);
    for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(a[i], b[i], std::abs(a[i]) * 0x1p-7 + 1e-6);
  }
}

}  // namespace
}  // namespace phx
