#include "phalanx/kernels/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace phx::kernels::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The distance from y to the true value in units of the last place of a float there; below the
// normal range the unit stays that of subnormals.
double ulps(float y, double truth) {
  if (std::abs(truth) > std::numeric_limits<float>::max()) return std::isinf(y) ? 0 : 1e9;
  int exponent;
  std::frexp(truth, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(double(y) - truth) / unit;
}

// The largest error over every 997th float between lo and hi (same sign).
template <class F, class G>
double worst(float lo, float hi, F f, G truth) {
  double most = 0;
  const uint32_t a = std::bit_cast<uint32_t>(lo), b = std::bit_cast<uint32_t>(hi);
  for (uint32_t bits = std::min(a, b); bits <= std::max(a, b) - 997; bits += 997) {
    const float x = std::bit_cast<float>(bits);
    most = std::max(most, ulps(f(x), truth(double(x))));
  }
  return most;
}

template <class F, class G>
double worst_both_signs(float hi, F f, G truth) {
  return std::max(worst(1e-30f, hi, f, truth), worst(-1e-30f, -hi, f, truth));
}

// 2.5: what the header promises. A correctly rounded result would be 0.5.
TEST(VectorMath, FloatsAreWithinTwoAndAHalfUlp) {
  EXPECT_LE(worst_both_signs(105.f, fast_exp<float>, [](double x) { return std::exp(x); }), 2.5);
  EXPECT_LE(worst(1e-45f, 3e38f, fast_log<float>, [](double x) { return std::log(x); }), 2.5);
  EXPECT_LE(worst_both_signs(20.f, fast_tanh<float>, [](double x) { return std::tanh(x); }), 2.5);
  EXPECT_LE(worst_both_signs(105.f, sigmoid<float>,
                             [](double x) { return std::exp(x) / (1 + std::exp(x)); }),
            2.5);
  EXPECT_LE(worst_both_signs(10.f, fast_erf<float>, [](double x) { return std::erf(x); }), 2.5);
}

TEST(VectorMath, SpecialValuesComeOutAsInLibm) {
  EXPECT_EQ(fast_exp(kInf), kInf);
  EXPECT_EQ(fast_exp(-kInf), 0.f);
  EXPECT_EQ(fast_exp(1000.f), kInf);
  EXPECT_EQ(fast_exp(-1000.f), 0.f);
  EXPECT_EQ(fast_exp(0.f), 1.f);
  EXPECT_EQ(fast_exp(-100.f), std::exp(-100.f));  // a subnormal
  EXPECT_TRUE(std::isnan(fast_exp(kNan)));

  EXPECT_EQ(fast_log(0.f), -kInf);
  EXPECT_EQ(fast_log(kInf), kInf);
  EXPECT_EQ(fast_log(1.f), 0.f);
  EXPECT_TRUE(std::isnan(fast_log(-1.f)));
  EXPECT_TRUE(std::isnan(fast_log(kNan)));

  EXPECT_EQ(fast_tanh(kInf), 1.f);
  EXPECT_EQ(fast_tanh(-kInf), -1.f);
  EXPECT_TRUE(std::signbit(fast_tanh(-0.f)));
  EXPECT_TRUE(std::isnan(fast_tanh(kNan)));

  EXPECT_EQ(sigmoid(kInf), 1.f);
  EXPECT_EQ(sigmoid(-kInf), 0.f);
  EXPECT_EQ(sigmoid(0.f), 0.5f);
  EXPECT_TRUE(std::isnan(sigmoid(kNan)));
  EXPECT_EQ(sigmoid(-std::numeric_limits<double>::infinity()), 0.0);

  EXPECT_EQ(fast_erf(kInf), 1.f);
  EXPECT_EQ(fast_erf(-kInf), -1.f);
  EXPECT_TRUE(std::signbit(fast_erf(-0.f)));
  EXPECT_TRUE(std::isnan(fast_erf(kNan)));
}

}  // namespace
}  // namespace phx::kernels::cpu
