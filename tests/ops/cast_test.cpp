#include "phalanx/ops/cast.h"

#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

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

TEST(Cast, TheGradientIsThatOfTheOutputRounded) {
  const std::vector<Tensor> in = {randn({5}, Seed{1}, DType::f32)};
  const Gradients narrow =
      gradients_of([](std::span<const Tensor> x) { return cast(x[0], DType::f64); }, in);
  const Gradients same =
      gradients_of([](std::span<const Tensor> x) { return x[0].reshape({5}); }, in);
  expect_close(narrow.inputs[0], same.inputs[0], 1e-7);
}

}  // namespace
}  // namespace phx
