#include "phalanx/ops/linear.h"

#include <gtest/gtest.h>

#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Tensor with_bias(std::span<const Tensor> in) { return linear(in[0], in[1], in[2]); }
Tensor without_bias(std::span<const Tensor> in) { return linear(in[0], in[1]); }

TEST(Linear, MatchesHandWorkedValues) {
  const Tensor x = from_values(std::vector<double>{1, 2}, {1, 2}, DType::f64, test_device());
  const Tensor w =
      from_values(std::vector<double>{3, 4, 5, 6, 7, 8}, {3, 2}, DType::f64, test_device());
  const Tensor b = from_values(std::vector<double>{10, 20, 30}, {3}, DType::f64, test_device());
  EXPECT_EQ(to_values(linear(x, w)), (std::vector<double>{11, 17, 23}));
  EXPECT_EQ(to_values(linear(x, w, b)), (std::vector<double>{21, 37, 53}));
}

TEST(Linear, GradientsMatchFiniteDifferences) {
  const Tensor x = randn({3, 2, 4}, Seed{1});  // [s, b, in]
  const Tensor w = randn({5, 4}, Seed{2});     // [out, in]
  const Tensor b = randn({5}, Seed{3});        // [out]
  expect_gradients_match(with_bias, {x, w, b});
  expect_gradients_match(without_bias, {x, w});
  // One tensor used twice gathers both gradients.
  expect_gradients_match(
      [](std::span<const Tensor> in) { return linear(linear(in[0], in[1]), in[1]); },
      {randn({3, 4}, Seed{4}), randn({4, 4}, Seed{5})});
}

Tensor onto(std::span<const Tensor> in) { return linear_onto(in[0], in[1], in[2]); }

TEST(LinearOnto, AddsTheProductToTheResidual) {
  const Tensor residual =
      from_values(std::vector<double>{100, 200, 300}, {1, 3}, DType::f64, test_device());
  const Tensor x = from_values(std::vector<double>{1, 2}, {1, 2}, DType::f64, test_device());
  const Tensor w =
      from_values(std::vector<double>{3, 4, 5, 6, 7, 8}, {3, 2}, DType::f64, test_device());
  EXPECT_EQ(to_values(linear_onto(residual, x, w)), (std::vector<double>{111, 217, 323}));
  EXPECT_EQ(to_values(residual), (std::vector<double>{100, 200, 300}));  // untouched
}

TEST(LinearOnto, GradientsMatchFiniteDifferences) {
  expect_gradients_match(
      onto, {randn({3, 2, 5}, Seed{1}), randn({3, 2, 4}, Seed{2}), randn({5, 4}, Seed{3})});
  // The residual has another use, whose gradient is added to what is passed on.
  expect_gradients_match(
      [](std::span<const Tensor> in) { return linear_onto(in[0], linear(in[0], in[1]), in[2]); },
      {randn({3, 5}, Seed{4}), randn({4, 5}, Seed{5}), randn({5, 4}, Seed{6})});
}

TEST(LinearOnto, ARemadeInputGivesTheSameGradients) {
  const std::vector<Tensor> in = {randn({6, 5}, Seed{1}), randn({6, 4}, Seed{2}),
                                  randn({5, 4}, Seed{3})};
  const Gradients kept = gradients_of(onto, in);
  const Gradients remade = gradients_of(
      [&](std::span<const Tensor> x) {
        return linear_onto(x[0], x[1], x[2], [y = x[1].detach()] { return y; });
      },
      in);
  for (size_t i = 0; i < in.size(); ++i) expect_close(remade.inputs[i], kept.inputs[i], 0);
}

TEST(LinearOnto, RoundsOnceIn16Bits) {
  // 1 + 2^-8 is no bf16: rounded first it would be lost.
  const Tensor residual = from_values(std::vector<double>{-1}, {1, 1}, DType::bf16, test_device());
  const Tensor x =
      from_values(std::vector<double>{1, 0.00390625}, {1, 2}, DType::bf16, test_device());
  const Tensor w = from_values(std::vector<double>{1, 1}, {1, 2}, DType::bf16, test_device());
  EXPECT_EQ(to_values(linear_onto(residual, x, w)), (std::vector<double>{0.00390625}));
}

TEST(LinearOnto, MetaAllocatesLikeCpu) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    expect_meta_allocates_like_cpu([dtype](Device device) {
      gradients_of(onto, std::vector<Tensor>{empty({33, 2, 40}, dtype, device),
                                             empty({33, 2, 24}, dtype, device),
                                             empty({40, 24}, dtype, device)});
    });
  }
}

TEST(LinearOnto, RefusesAResidualOfAnotherShape) {
  const Tensor x = randn({6, 4}, Seed{1}), w = randn({5, 4}, Seed{2});
  EXPECT_THROW(linear_onto(randn({6, 4}, Seed{3}), x, w), Error);
}

PHX_CUDA_TEST(LinearOnto, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (int64_t in : {7, 288, 1000}) {
      // As for Linear: one rounding (two where the library rounds the product first).
      const double tolerance = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 2e-3 : 1.6e-2;
      expect_cuda_matches_cpu(onto,
                              {randn({37, 3, 65}, Seed{1}, dtype),
                               randn({37, 3, in}, Seed{2}, dtype), randn({65, in}, Seed{3}, dtype)},
                              tolerance);
    }
  }
}

TEST(Linear, WeightGradientsCanBePutOff) {
  const std::vector<Tensor> in = {randn({6, 4}, Seed{1}), randn({5, 4}, Seed{2}),
                                  randn({5}, Seed{3})};
  const Gradients now = gradients_of(with_bias, in);
  Segment segment(in, [](std::span<const Tensor> x) { return std::vector{with_bias(x)}; });
  const Tensor dy = randn({6, 5}, Seed{99});
  DeferredWork later;
  const auto gradients = segment.backward(std::span(&dy, 1), {.defer = &later});
  ASSERT_EQ(later.size(), 2u);  // dw and db; dx is there already
  expect_close(gradients[0], now.inputs[0], 0);
  for (const auto& work : later) work();
}

TEST(Linear, AFrozenWeightKeepsNothingOfItsInput) {
  Tensor x = randn({6, 4}, Seed{1});
  const Tensor w = randn({5, 4}, Seed{2});
  std::vector<Tensor> in = {x};
  x = Tensor();
  Segment segment(in, [&](std::span<const Tensor> inputs) {
    const Tensor doubled = linear(inputs[0], randn({4, 4}, Seed{3}));  // ours alone
    Tensor y = linear(doubled, w);
    EXPECT_TRUE(doubled.sole_owner());
    return std::vector{y};
  });
}

TEST(Linear, MetaAllocatesLikeCpu) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    expect_meta_allocates_like_cpu([dtype](Device device) {
      gradients_of(with_bias,
                   std::vector<Tensor>{empty({33, 2, 24}, dtype, device),
                                       empty({40, 24}, dtype, device), empty({40}, dtype, device)});
    });
  }
}

PHX_CUDA_TEST(Linear, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (int64_t in : {7, 288, 1000}) {
      // One rounding of each result; the sums are f32 on both sides, in another order.
      const double tolerance = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 1e-3 : 8e-3;
      const std::vector<Tensor> inputs = {randn({37, 3, in}, Seed{1}, dtype),
                                          randn({65, in}, Seed{2}, dtype),
                                          randn({65}, Seed{3}, dtype)};
      expect_cuda_matches_cpu(with_bias, inputs, tolerance);
    }
  }
}

TEST(Linear, RefusesAWeightOfAnotherWidth) {
  const std::string message = error_of([] {
    linear(randn({2, 8}, Seed{1}), randn({5, 7}, Seed{2}));
  });
  EXPECT_EQ(message, "linear: x is [2, 8], so w should be [out, 8], but it is [5, 7]");
}

}  // namespace
}  // namespace phx
