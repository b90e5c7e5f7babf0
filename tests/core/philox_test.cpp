#include "phalanx/core/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace phx {
namespace {

TEST(Philox, MatchesThePublishedVectors) {  // Random123's known-answer file, philox4x32-10
  const Philox4 zeros = philox4x32(0, 0, 0, 0, 0);
  EXPECT_EQ(zeros.x[0], 0x6627e8d5u);
  EXPECT_EQ(zeros.x[1], 0xe169c58du);
  EXPECT_EQ(zeros.x[2], 0xbc57ac4cu);
  EXPECT_EQ(zeros.x[3], 0x9b00dbd8u);
  const Philox4 ones = philox4x32(~uint64_t{0}, ~0u, ~0u, ~0u, ~0u);
  EXPECT_EQ(ones.x[0], 0x408f276du);
  EXPECT_EQ(ones.x[1], 0x41c83b0eu);
  EXPECT_EQ(ones.x[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.x[3], 0x6d5451fdu);
}

TEST(Philox, KeysDifferBySeedSiteAndStep) {
  const uint64_t key = philox_key(1, site_of("decoder.layers.0"), 0);
  EXPECT_NE(key, philox_key(2, site_of("decoder.layers.0"), 0));
  EXPECT_NE(key, philox_key(1, site_of("decoder.layers.1"), 0));
  EXPECT_NE(key, philox_key(1, site_of("decoder.layers.0"), 1));
}

TEST(Philox, NormalsHaveTheMomentsAndTailsOfNormals) {
  const int n = 1 << 20;
  double sum = 0, square = 0, fourth = 0;
  int beyond3 = 0;
  for (int i = 0; i < n; ++i) {
    const double z = normal_from(philox4x32(philox_key(5, 1, 0), i, 0, 0, 0).x[0]);
    sum += z;
    square += z * z;
    fourth += z * z * z * z;
    beyond3 += std::abs(z) > 3;
  }
  // Standard errors at n = 2^20: mean 0.001, variance 0.0014, fourth moment 0.0096; five of each.
  EXPECT_NEAR(sum / n, 0, 0.005);
  EXPECT_NEAR(square / n, 1, 0.007);
  EXPECT_NEAR(fourth / n, 3, 0.048);
  EXPECT_NEAR(beyond3, n * 0.0026998, 5 * std::sqrt(n * 0.0027));
}

TEST(Philox, TheOutermostBitsStayInsideOfTheOpenInterval) {
  EXPECT_GT(uniform_from(0), 0.f);
  EXPECT_LT(uniform_from(~0u), 1.f);
  EXPECT_NEAR(normal_from(~0u), 5.294f, 0.001f);  // the quantile at 1 - 2^-24
  EXPECT_NEAR(normal_from(0), -5.294f, 0.001f);
}

TEST(Philox, NormalsInvertTheDistributionFunction) {
  for (uint32_t i = 0; i < 4096; ++i) {
    const uint32_t bits = i << 20 | 0x80000u;
    const double u = uniform_from(bits);
    const double z = normal_from(bits);
    EXPECT_NEAR(0.5 * std::erfc(-z / std::sqrt(2.0)), u, 1e-6) << u;  // f32 polynomial: about 1e-7
  }
}

}  // namespace
}  // namespace phx
