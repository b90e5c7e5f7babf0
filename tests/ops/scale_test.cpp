#include "phalanx/ops/scale.h"

#include <gtest/gtest.h>

#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(Scale, MatchesHandWorkedValues) {
  const Tensor x = from_values(std::vector<double>{1, -2}, {2}, DType::f64, test_device());
  EXPECT_EQ(to_values(scale(x, -1.5)), (std::vector<double>{-1.5, 3}));
}

TEST(Scale, GradientsMatchFiniteDifferences) {
  expect_gradients_match([](std::span<const Tensor> in) { return scale(in[0], -1.5); },
                         {randn({3, 4}, Seed{1})});
}

// 2x + 3x through one input: the second gradient is added to the first by the kernel.
TEST(Scale, ASecondUseAddsItsGradient) {
  const Tensor x = from_values(std::vector<double>{7}, {1}, DType::f64, test_device());
  const Tensor dys[] = {from_values(std::vector<double>{1}, {1}, DType::f64, test_device()),
                        from_values(std::vector<double>{10}, {1}, DType::f64, test_device())};
  Segment segment(std::span(&x, 1), [](std::span<const Tensor> in) {
    return std::vector<Tensor>{scale(in[0], 2), scale(in[0], 3)};
  });
  EXPECT_EQ(to_values(segment.outputs()[1])[0], 21.0);
  EXPECT_EQ(to_values(segment.backward(dys)[0])[0], 32.0);
}

}  // namespace
}  // namespace phx
