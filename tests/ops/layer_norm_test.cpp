#include "phalanx/ops/layer_norm.h"

#include <gtest/gtest.h>

#include "phalanx/ops/dropout.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Function norm(const NormOptions& options = {}) {
  return [options](std::span<const Tensor> in) {
    return layer_norm(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), options);
  };
}

TEST(LayerNorm, MatchesHandWorkedValues) {
  const Tensor x = from_values(std::vector<double>{1, 5, 1, 5}, {1, 4}, DType::f64, test_device());
  const Tensor w = from_values(std::vector<double>{1, 2, 3, 4}, {4}, DType::f64, test_device());
  const Tensor bias = from_values(std::vector<double>{0, 0, 1, 1}, {4}, DType::f64, test_device());
  const auto y = to_values(layer_norm(x, w, bias, {.eps = 0}));  // mean 3, standard deviation 2
  EXPECT_EQ(y, (std::vector<double>{-1, 2, -2, 5}));
}

TEST(LayerNorm, ZeroCentredWeightsAreStoredMinusOne) {
  const Tensor x = randn({5, 8}, Seed{1}), bias = randn({8}, Seed{2});
  const Tensor zero = from_values(std::vector<double>(8, 0.0), {8}, DType::f64, test_device());
  const Tensor one = from_values(std::vector<double>(8, 1.0), {8}, DType::f64, test_device());
  // The same arithmetic, so the same values: the tolerance is f64's own precision.
  expect_close(layer_norm(x, zero, bias, {.zero_centred = true}), layer_norm(x, one, bias), 1e-15);
}

TEST(LayerNorm, GradientsMatchFiniteDifferences) {
  for (bool zero_centred : {false, true}) {
    expect_gradients_match(norm({.zero_centred = zero_centred}),
                           {randn({19, 2, 8}, Seed{1}), randn({8}, Seed{2}), randn({8}, Seed{3})});
    expect_gradients_match(norm({.zero_centred = zero_centred}),
                           {randn({3, 2, 8}, Seed{1}), randn({8}, Seed{2})});
  }
}

// The second backward adds to the gradients of the first.
Function used_twice() {
  return [](std::span<const Tensor> in) {
    const Tensor y = layer_norm(in[0], in[1], in[2]);
    return bias_dropout_add(y, layer_norm(in[0], in[1], in[2], {.zero_centred = true}), Tensor(), 0,
                            {});
  };
}

TEST(LayerNorm, AddsToGradientsThatAreThere) {
  expect_gradients_match(used_twice(),
                         {randn({19, 2, 8}, Seed{1}), randn({8}, Seed{2}), randn({8}, Seed{3})});
}

PHX_CUDA_TEST(LayerNorm, CudaAddsToGradientsThatAreThere) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t h : {7, 288, 4096}) {
      // Several roundings to 8 bits in bf16: two outputs, two gradients and their sums.
      expect_cuda_matches_cpu(used_twice(),
                              {randn({37, 3, h}, Seed{1}, dtype), randn({h}, Seed{2}, dtype),
                               randn({h}, Seed{3}, dtype)},
                              dtype == DType::f32 ? 1e-5 : 3e-2);
    }
}

TEST(LayerNorm, MetaAllocatesLikeCpu) {
  expect_meta_allocates_like_cpu([](Device device) {
    gradients_of(norm(), std::vector<Tensor>{empty({33, 2, 24}, DType::f32, device),
                                             empty({24}, DType::f32, device),
                                             empty({24}, DType::f32, device)});
  });
}

PHX_CUDA_TEST(LayerNorm, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (int64_t h : {7, 288, 1000, 4096, 12288, 20480}) {
      // One rounding a tensor element to 8 (bf16) or 11 bits (f16), and sums that may fall to
      // either side of it; f32 sums differ in order only.
      const double tolerance = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 4e-3 : 2e-2;
      expect_cuda_matches_cpu(norm(),
                              {randn({37, 3, h}, Seed{1}, dtype), randn({h}, Seed{2}, dtype),
                               randn({h}, Seed{3}, dtype)},
                              tolerance);
    }
    expect_cuda_matches_cpu(norm({.zero_centred = true}),
                            {randn({5, 64}, Seed{1}, dtype), randn({64}, Seed{2}, dtype)},
                            dtype == DType::f32 ? 1e-5 : 2e-2);
  }
}

TEST(LayerNorm, RefusesABiasOfAnotherWidth) {
  const std::string message = error_of([] {
    layer_norm(randn({2, 8}, Seed{1}), randn({8}, Seed{2}), randn({7}, Seed{3}));
  });
  EXPECT_EQ(message, "layer_norm: w is [8], so the bias should be too, but it is [7]");
}

}  // namespace
}  // namespace phx
