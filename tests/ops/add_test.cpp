#include "phalanx/ops/add.h"

#include <gtest/gtest.h>

#include "phalanx/ops/scale.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Tensor residual(std::span<const Tensor> in) { return add(in[0], scale(in[1], 0.3)); }
Tensor twice(std::span<const Tensor> in) { return add(in[0], in[0]); }

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

TEST(Add, MatchesHandWorkedValues) {
  const Tensor a = from_values(std::vector<double>{1, -2}, {2}, DType::f64, test_device());
  const Tensor b = from_values(std::vector<double>{0.5, 5}, {2}, DType::f64, test_device());
  EXPECT_EQ(to_values(add(a, b)), (std::vector<double>{1.5, 3}));
  EXPECT_EQ(to_values(a), (std::vector<double>{1, -2})) << "an input was overwritten";
}

TEST(Add, RefusesUnlikeTensors) {
  const Tensor a = randn({2, 3}, Seed{1});
  EXPECT_THROW(add(a, randn({3, 2}, Seed{2})), Error);
  EXPECT_THROW(add(a, randn({2, 3}, Seed{2}, DType::f32)), Error);
}

}  // namespace
}  // namespace phx
