#include "phalanx/ops/activation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/ops/dropout.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr Activation kAll[] = {Activation::gelu, Activation::gelu_tanh, Activation::quick_gelu,
                               Activation::silu, Activation::relu_squared};

Function plain(Activation kind) {
  return [kind](std::span<const Tensor> in) { return activate(in[0], kind); };
}
Function gated(Activation kind) {
  return [kind](std::span<const Tensor> in) { return activate_gated(in[0], kind); };
}

// The definitions, straight from the papers.
double reference(Activation kind, double x) {
  switch (kind) {
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::quick_gelu:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
  }
  return NAN;
}

TEST(Activation, MatchesHandWorkedValues) {
  const Tensor x = from_values(std::vector<double>{1, -2}, {2}, DType::f64, test_device());
  EXPECT_NEAR(to_values(activate(x, Activation::gelu))[0], 0.8413447460685429, 1e-15);
  EXPECT_NEAR(to_values(activate(x, Activation::silu))[1], -2 / (1 + std::exp(2.0)), 1e-15);
  EXPECT_EQ(to_values(activate(x, Activation::relu_squared)), (std::vector<double>{1, 0}));
  const Tensor packed =
      from_values(std::vector<double>{0, 3, 5, -4}, {1, 4}, DType::f64, test_device());
  const auto y = to_values(swiglu(packed));  // gate 0, 3; up 5, -4
  EXPECT_EQ(y.size(), 2u);
  EXPECT_EQ(y[0], 0);
  EXPECT_NEAR(y[1], -12 / (1 + std::exp(-3.0)), 1e-14);
}

TEST(Activation, FollowsItsDefinitionInF32AndF64) {
  for (Activation kind : kAll) {
    SCOPED_TRACE(name(kind));
    for (DType dtype : {DType::f64, DType::f32}) {
      const Tensor x = randn({1000}, Seed{3}, dtype);
      std::vector<double> expected = to_values(x);
      for (double& value : expected) value = reference(kind, value);
      // A few roundings of the type: 2^-53 and 2^-24, the largest value about 10.
      expect_close(activate(x, kind), from_values(expected, {1000}, DType::f64, test_device()),
                   dtype == DType::f64 ? 1e-15 : 3e-7);
    }
  }
}

TEST(Activation, GatedIsTheActivatedGateTimesUp) {
  for (Activation kind : kAll) {
    SCOPED_TRACE(name(kind));
    const Tensor x = randn({3, 10}, Seed{4});
    const auto packed = to_values(x);
    std::vector<double> expected;
    for (int row = 0; row < 3; ++row)
      for (int i = 0; i < 5; ++i)
        expected.push_back(reference(kind, packed[row * 10 + i]) * packed[row * 10 + 5 + i]);
    expect_close(activate_gated(x, kind), from_values(expected, {3, 5}, DType::f64, test_device()),
                 1e-15);
  }
}

TEST(Activation, GradientsMatchFiniteDifferences) {
  for (Activation kind : kAll) {
    SCOPED_TRACE(name(kind));
    expect_gradients_match(plain(kind), {randn({3, 2, 7}, Seed{1})});
    expect_gradients_match(gated(kind), {randn({3, 2, 10}, Seed{1})});
  }
}

// The second backward adds to the gradient of the first.
Function used_twice(bool with_gate) {
  return [with_gate](std::span<const Tensor> in) {
    const Tensor& x = in[0];
    return with_gate ? bias_dropout_add(swiglu(x), geglu(x), Tensor(), 0, {})
                     : bias_dropout_add(activate(x, Activation::gelu),
                                        activate(x, Activation::silu), Tensor(), 0, {});
  };
}

TEST(Activation, AddsToAGradientThatIsThere) {
  for (bool with_gate : {false, true})
    expect_gradients_match(used_twice(with_gate), {randn({3, 2, 10}, Seed{1})});
}

PHX_CUDA_TEST(Activation, CudaAddsToAGradientThatIsThere) {
  for (bool with_gate : {false, true})
    for (int64_t f : {14, 128})  // f32: a few units of 2^-24
      expect_cuda_matches_cpu(used_twice(with_gate), {randn({37, 3, f}, Seed{1}, DType::f32)},
                              1e-6);
}

TEST(Activation, MetaAllocatesLikeCpu) {
  expect_meta_allocates_like_cpu([](Device device) {
    gradients_of(plain(Activation::gelu),
                 std::vector<Tensor>{empty({33, 2, 24}, DType::bf16, device)});
    gradients_of(gated(Activation::silu),
                 std::vector<Tensor>{empty({33, 2, 24}, DType::bf16, device)});
  });
}

PHX_CUDA_TEST(Activation, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    // Both sides compute in f32 and round once; f32 differs by a few units of 2^-24, 16 bits by a
    // rounding to the other side.
    const double tolerance = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 1e-3 : 8e-3;
    for (Activation kind : kAll) {
      SCOPED_TRACE(name(kind));
      for (int64_t f : {7, 64, 1000}) {
        expect_cuda_matches_cpu(plain(kind), {randn({37, 3, f}, Seed{1}, dtype)}, tolerance);
        expect_cuda_matches_cpu(gated(kind), {randn({37, 3, 2 * f}, Seed{1}, dtype)}, tolerance);
      }
    }
  }
}

TEST(Activation, RefusesAGatedInputOfOddWidth) {
  EXPECT_EQ(error_of([] {
              swiglu(randn({2, 7}, Seed{1}));
            }),
            "gated silu: x is [2, 7], but its last dimension should be even: [.., gate | up]");
}

}  // namespace
}  // namespace phx
