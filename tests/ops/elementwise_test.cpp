// The small ops add, scale, cast and transpose.
#include <gtest/gtest.h>

#include "phalanx/ops/add.h"
#include "phalanx/ops/cast.h"
#include "phalanx/ops/scale.h"
#include "phalanx/ops/transpose.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Tensor residual(std::span<const Tensor> in) { return add(in[0], scale(in[1], 0.3)); }
Tensor twice(std::span<const Tensor> in) { return add(in[0], in[0]); }
Tensor swapped(std::span<const Tensor> in) { return transpose(in[0]); }

TEST(Add, GradientsMatchFiniteDifferences) {
  expect_gradients_match(residual, {randn({3, 4}, Seed{1}), randn({3, 4}, Seed{2})});
  expect_gradients_match(twice, {randn({3, 4}, Seed{1})});
}

TEST(Add, PassesItsGradientOnWithoutACopy) {
  const std::vector<Tensor> in = {randn({3, 4}, Seed{1}), randn({3, 4}, Seed{2})};
  const Gradients gradients =
      gradients_of([](std::span<const Tensor> x) { return add(x[0], x[1]); }, in);
  EXPECT_TRUE(gradients.inputs[0].same_storage(gradients.inputs[1]));
}

TEST(Scale, MatchesHandWorkedValues) {
  const Tensor x = from_values(std::vector<double>{1, -2}, {2}, DType::f64, test_device());
  EXPECT_EQ(to_values(scale(x, -1.5)), (std::vector<double>{-1.5, 3}));
}

TEST(Cast, RoundsForwardAndWidensTheGradient) {
  const Tensor x = from_values(std::vector<double>{1.0 + 0x1p-9}, {1}, DType::f32, test_device());
  const Gradients gradients = gradients_of(
      [](std::span<const Tensor> in) { return cast(in[0], DType::bf16); }, std::vector<Tensor>{x});
  EXPECT_EQ(gradients.output.dtype(), DType::bf16);
  EXPECT_EQ(to_values(gradients.output)[0], 1.0);
  EXPECT_EQ(gradients.inputs[0].dtype(), DType::f32);
}

TEST(Cast, ToItsOwnTypeIsTheTensorItself) {
  const Tensor x = randn({2}, Seed{1});
  EXPECT_TRUE(cast(x, DType::f64).same_storage(x));
}

TEST(Cast, RefusesIntegers) {
  EXPECT_EQ(error_of([] { cast(rand_ints({2}, 5, Seed{1}), DType::f32); }),
            "cast: from i64 to f32 has no gradient; kernels::cast converts any dtype to any");
}

TEST(Transpose, MatchesHandWorkedValues) {
  const Tensor x =
      from_values(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}, DType::f64, test_device());
  EXPECT_EQ(to_values(transpose(x)), (std::vector<double>{1, 4, 2, 5, 3, 6}));
}

TEST(Transpose, GradientsMatchFiniteDifferences) {
  expect_gradients_match(swapped, {randn({3, 2, 4}, Seed{1})});  // [b, s, h]
  expect_gradients_match(swapped, {randn({3, 5}, Seed{1})});
}

TEST(Transpose, RefusesAVector) {
  EXPECT_EQ(error_of([] { transpose(randn({4}, Seed{1})); }),
            "transpose: x is [4], but it needs two dimensions");
}

TEST(SmallOps, MetaAllocatesLikeCpu) {
  expect_meta_allocates_like_cpu([](Device device) {
    const auto f = [](std::span<const Tensor> in) {
      return cast(transpose(residual(in)), DType::bf16);
    };
    gradients_of(f, std::vector<Tensor>{empty({33, 24}, DType::f32, device),
                                        empty({33, 24}, DType::f32, device)});
  });
}

PHX_CUDA_TEST(SmallOps, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const auto f = [](std::span<const Tensor> in) {
      return cast(transpose(residual(in)), DType::f32);
    };
    // A fused multiply-add, two roundings to `dtype`.
    const double tolerance = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 2e-3 : 1.6e-2;
    expect_cuda_matches_cpu(
        f, {randn({37, 3, 11}, Seed{1}, dtype), randn({37, 3, 11}, Seed{2}, dtype)}, tolerance);
  }
}

}  // namespace
}  // namespace phx
