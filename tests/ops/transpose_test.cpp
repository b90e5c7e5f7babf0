#include "phalanx/ops/transpose.h"

#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Tensor swapped(std::span<const Tensor> in) { return transpose(in[0]); }

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

TEST(Transpose, RowsBehindTheFirstTwoDimensionsStayTogether) {
  const Tensor x = from_values(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}, DType::f64,
                               test_device());  // [b, s, h]
  EXPECT_EQ(to_values(transpose(x)), (std::vector<double>{1, 2, 5, 6, 3, 4, 7, 8}));
  EXPECT_EQ(transpose(randn({3, 0, 2}, Seed{1})).shape(), Shape({0, 3, 2}));
}

}  // namespace
}  // namespace phx
