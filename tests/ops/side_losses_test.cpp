#include "phalanx/ops/side_losses.h"

#include <gtest/gtest.h>

#include "phalanx/ops/scale.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(SideLosses, TrainAndAreNotSeen) {
  const std::vector<Tensor> in = {randn({1}, Seed{1}), randn({1}, Seed{2}), randn({1}, Seed{3})};
  const Gradients got = gradients_of(
      [](std::span<const Tensor> x) {
        const Tensor others[] = {scale(x[1], 3.0), scale(x[2], 5.0)};
        return with_side_losses(scale(x[0], 2.0), others);
      },
      in);
  EXPECT_EQ(to_values(got.output)[0], 2 * to_values(in[0])[0]);
  const double main = to_values(got.inputs[0])[0] / 2;  // what the backward starts from
  ASSERT_NE(main, 0);
  EXPECT_DOUBLE_EQ(to_values(got.inputs[1])[0], 3 * main);
  EXPECT_DOUBLE_EQ(to_values(got.inputs[2])[0], 5 * main);
}

TEST(SideLosses, AreOneNumberEach) {
  const Tensor loss = randn({1}, Seed{1}), others[] = {randn({2}, Seed{2})};
  EXPECT_EQ(error_of([&] { with_side_losses(loss, others); }),
            "with_side_losses: the loss is [1] of f64, but another one is [2] of f64");
}

}  // namespace
}  // namespace phx
