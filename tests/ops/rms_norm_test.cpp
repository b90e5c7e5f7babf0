#include "phalanx/ops/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/ops/dropout.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(RmsNorm, MatchesHandWorkedValues) {
  const Tensor x = from_values(std::vector<double>{3, 4, 0, 0}, {1, 4}, DType::f64, test_device());
  const Tensor w = from_values(std::vector<double>{1, 2, 1, 1}, {4}, DType::f64, test_device());
  const auto y = to_values(rms_norm(x, w, {.eps = 0}));  // mean square 25/4, root 2.5
  EXPECT_DOUBLE_EQ(y[0], 1.2);
  EXPECT_DOUBLE_EQ(y[1], 3.2);
  EXPECT_DOUBLE_EQ(y[2], 0.0);
}

TEST(RmsNorm, ZeroCentredWeightsAreStoredMinusOne) {
  const Tensor x = randn({5, 8}, Seed{1});
  const Tensor zero = from_values(std::vector<double>(8, 0.0), {8}, DType::f64, test_device());
  const Tensor one = from_values(std::vector<double>(8, 1.0), {8}, DType::f64, test_device());
  expect_close(rms_norm(x, zero, {.zero_centred = true}), rms_norm(x, one), 1e-15);
}

TEST(RmsNorm, GradientsMatchFiniteDifferences) {
  for (bool zero_centred : {false, true}) {
    expect_gradients_match(
        [&](std::span<const Tensor> in) {
          return rms_norm(in[0], in[1], {.zero_centred = zero_centred});
        },
        {randn({3, 2, 8}, Seed{1}), randn({8}, Seed{2})});  // [s, b, h], [h]
  }
}

// The second backward adds to the gradients of the first.
Function used_twice() {
  return [](std::span<const Tensor> in) {
    const Tensor y = rms_norm(in[0], in[1]);
    return bias_dropout_add(y, rms_norm(in[0], in[1], {.zero_centred = true}), Tensor(), 0, {});
  };
}

TEST(RmsNorm, AddsToGradientsThatAreThere) {
  expect_gradients_match(used_twice(), {randn({19, 2, 8}, Seed{1}), randn({8}, Seed{2})});
}

PHX_CUDA_TEST(RmsNorm, CudaAddsToGradientsThatAreThere) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t h : {7, 288, 4096}) {
      // Several roundings to 8 bits in bf16: two outputs, two gradients and their sums.
      expect_cuda_matches_cpu(used_twice(),
                              {randn({37, 3, h}, Seed{1}, dtype), randn({h}, Seed{2}, dtype)},
                              dtype == DType::f32 ? 1e-5 : 3e-2);
    }
}

TEST(RmsNorm, MetaAllocatesLikeCpu) {
  expect_meta_allocates_like_cpu([](Device device) {
    gradients_of([](std::span<const Tensor> in) { return rms_norm(in[0], in[1]); },
                 std::vector<Tensor>{empty({33, 2, 24}, DType::f32, device),
                                     empty({24}, DType::f32, device)});
  });
}

PHX_CUDA_TEST(RmsNorm, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (int64_t h : {7, 288, 1000, 4096}) {
      // Two roundings to 8 bits of mantissa in bf16 (output, gradient); f32 sums differ in order
      // only.
      const double tolerance = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 4e-3 : 2e-2;
      expect_cuda_matches_cpu([](std::span<const Tensor> in) { return rms_norm(in[0], in[1]); },
                              {randn({37, 3, h}, Seed{1}, dtype), randn({h}, Seed{2}, dtype)},
                              tolerance);
    }
  }
}

TEST(RmsNorm, RefusesAWeightOfAnotherWidth) {
  const std::string message = error_of([] {
    rms_norm(randn({2, 8}, Seed{1}), randn({7}, Seed{2}));
  });
  EXPECT_EQ(message, "rms_norm: x is [2, 8], so w should be [8], but it is [7]");
}

}  // namespace
}  // namespace phx
