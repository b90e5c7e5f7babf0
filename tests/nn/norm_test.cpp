#include "phalanx/nn/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/nn/parameter_store.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Tensor row(const std::vector<double>& values) {  // [1, h]
  return from_values(values, {1, int64_t(values.size())}, DType::f64, test_device());
}

std::vector<double> normed(const NormSpec& spec, const std::vector<double>& x, double weight = 1) {
  NormModule norm(spec);
  ParameterStore store(norm, test_device(), {.dtype = DType::f64});
  double* w = norm.weight().value().data<double>();
  for (int64_t i = 0; i < spec.width; ++i) w[i] += weight - 1;
  return to_values(norm.forward(row(x)));
}

// The mean square of 3 and 4 is 12.5; their mean is 3.5 and their deviation 0.5.
TEST(Norm, BothKindsByHand) {
  const std::vector<double> rms =
      normed({.kind = Normalization::RMSNorm, .width = 2, .eps = 0}, {3, 4});
  EXPECT_NEAR(rms[0], 3 / std::sqrt(12.5), 1e-15);
  EXPECT_NEAR(rms[1], 4 / std::sqrt(12.5), 1e-15);
  const std::vector<double> layer =
      normed({.kind = Normalization::LayerNorm, .width = 2, .eps = 0}, {3, 4});
  EXPECT_NEAR(layer[0], -1, 1e-14);
  EXPECT_NEAR(layer[1], 1, 1e-14);
}

TEST(Norm, EpsStandsBesideTheMeanSquare) {
  const std::vector<double> y =
      normed({.kind = Normalization::RMSNorm, .width = 2, .eps = 12.5}, {3, 4});
  EXPECT_NEAR(y[0], 3 / 5.0, 1e-15);
}

TEST(Norm, AZeroCentredWeightIsStoredMinusOne) {
  const NormSpec plain{.width = 2, .eps = 0};
  const NormSpec centred{.width = 2, .eps = 0, .zero_centred = true};
  NormModule norm(centred);
  ParameterStore store(norm, test_device(), {.dtype = DType::f64});
  EXPECT_EQ(to_values(norm.weight().value()), (std::vector<double>{0, 0}));
  EXPECT_EQ(normed(centred, {3, 4}), normed(plain, {3, 4}));
  EXPECT_EQ(normed(centred, {3, 4}, 2.5), normed(plain, {3, 4}, 2.5));
}

TEST(Norm, OnlyALayerNormHasABias) {
  const auto names = [](Normalization kind) {
    NormModule norm({.kind = kind, .width = 2});
    std::vector<std::string> list;
    norm.for_each_parameter([&](const std::string& name, Parameter&) { list.push_back(name); });
    return list;
  };
  EXPECT_EQ(names(Normalization::RMSNorm), (std::vector<std::string>{"weight"}));
  EXPECT_EQ(names(Normalization::LayerNorm), (std::vector<std::string>{"weight", "bias"}));
}

TEST(Norm, BothParametersHaveTheAxesOfTheSpec) {
  ParameterAxes axes;
  axes.partial.add(Axis::tp);
  Norm norm({.kind = Normalization::LayerNorm, .width = 2, .axes = axes});
  EXPECT_TRUE(norm.weight().axes().partial.has(Axis::tp));
  ASSERT_NE(norm.bias(), nullptr);
  EXPECT_TRUE(norm.bias()->axes().partial.has(Axis::tp));
  EXPECT_FALSE(norm.weight().decays());
}

}  // namespace
}  // namespace phx
