#include "phalanx/core/small_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace phx {
namespace {

// Nearest value of the format by brute force over all its bit patterns, ties to the even pattern.
template <class T>
float nearest(float x, uint32_t patterns) {
  double best = std::numeric_limits<double>::infinity();
  float result = 0;
  bool even = false;
  for (uint32_t bits = 0; bits < patterns; ++bits) {
    T candidate;
    candidate.bits = decltype(candidate.bits)(bits);
    const float value = candidate;
    if (!std::isfinite(value) || std::signbit(value) != std::signbit(x)) continue;
    const double distance = std::abs(double(value) - double(x));
    if (distance < best || (distance == best && !even)) {
      best = distance;
      result = value;
      even = bits % 2 == 0;
    }
  }
  return result;
}

template <class T>
void expect_round_trips(uint32_t patterns) {
  for (uint32_t bits = 0; bits < patterns; ++bits) {
    T value;
    value.bits = decltype(value.bits)(bits);
    const float wide = value;
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(float(T(wide))));
    } else if (std::isfinite(wide)) {
      EXPECT_EQ(T(wide).bits, value.bits) << bits;
    }
  }
}

TEST(SmallFloat, EveryValueSurvivesTheWayThroughFloat) {
  expect_round_trips<bf16>(1 << 16);
  expect_round_trips<f16>(1 << 16);
  expect_round_trips<f8e4m3>(1 << 8);
  expect_round_trips<f8e5m2>(1 << 8);
}

TEST(SmallFloat, RoundsToNearestEven) {
  uint32_t state = 1;
  for (int i = 0; i < 2000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = std::ldexp(float(int32_t(state)) / 2147483648.f, int(state % 24) - 16);
    EXPECT_EQ(float(f8e4m3(x)), nearest<f8e4m3>(x, 256)) << x;
    EXPECT_EQ(float(f8e5m2(x)), nearest<f8e5m2>(x, 256)) << x;
  }
  EXPECT_EQ(float(bf16(1.f + 1.f / 256)), 1.f);              // a tie, to even
  EXPECT_EQ(float(bf16(1.f + 3.f / 256)), 1.f + 2.f / 128);  // a tie, to even
  EXPECT_EQ(float(f16(1.f + 1.f / 2048)), 1.f);
  EXPECT_EQ(float(f16(65519.f)), 65504.f);
  EXPECT_TRUE(std::isinf(float(f16(65520.f))));
  EXPECT_EQ(float(f16(5.9604645e-8f)), 5.9604645e-8f);  // the smallest subnormal
}

TEST(SmallFloat, EightBitStoresSaturate) {
  EXPECT_EQ(float(f8e4m3(1e9f)), 448.f);
  EXPECT_EQ(float(f8e4m3(-INFINITY)), -448.f);
  EXPECT_EQ(float(f8e5m2(1e9f)), 57344.f);
  EXPECT_TRUE(std::isnan(float(f8e4m3(NAN))));
}

}  // namespace
}  // namespace phx
