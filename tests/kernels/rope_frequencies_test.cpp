#include "phalanx/kernels/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradients.h"

namespace phx::kernels {
namespace {

using namespace phx::testing;

TEST(RopeFrequencies, FallGeometricallyFromOne) {
  const auto plain = rope_frequencies({.head_dim = 8, .base = 10000});
  ASSERT_EQ(plain.inverse.size(), 4u);
  EXPECT_EQ(plain.attention_factor, 1);
  const double expected[] = {1, 0.1, 0.01, 0.001};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(plain.inverse[i], expected[i], 1e-16);
  const auto half = rope_frequencies({.head_dim = 8, .percent = 0.5, .interpolation = 4});
  ASSERT_EQ(half.inverse.size(), 2u);
  EXPECT_DOUBLE_EQ(half.inverse[0], 0.25);
  EXPECT_DOUBLE_EQ(half.inverse[1], 0.0025);
}

// Llama 3.1: wavelengths below 8192 / 4 are kept, above 8192 divided by 8.
TEST(RopeFrequencies, Llama3ScalesLongWavelengthsOnly) {
  const RopeConfig plain{.head_dim = 128, .base = 500000};
  RopeConfig scaled = plain;
  scaled.llama3 = Llama3Scaling{};
  const auto before = rope_frequencies(plain).inverse, after = rope_frequencies(scaled).inverse;
  int kept = 0, cut = 0, between = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const double wavelength = 2 * M_PI / before[i];
    double expected;
    if (wavelength < 2048) {
      expected = before[i];
      ++kept;
    } else if (wavelength > 8192) {
      expected = before[i] / 8;
      ++cut;
    } else {
      const double s = (8192 / wavelength - 1) / 3;
      expected = (1 - s) * before[i] / 8 + s * before[i];
      ++between;
    }
    EXPECT_NEAR(after[i], expected, 1e-15 * before[i]) << "pair " << i;
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(cut, 20);
  EXPECT_GT(between, 3);
}

// Heads of 128, base 10000, 4096 positions: 32 turns fall between pairs 20 and 21 (20.94), one turn
// between 45 and 46 (45.03), so the ramp runs from 20 to 46.
TEST(RopeFrequencies, YarnRampsFromFastToSlowPairs) {
  const RopeConfig plain{.head_dim = 128};
  RopeConfig config = plain;
  config.yarn = YarnScaling{.factor = 16, .original_length = 4096};
  const auto before = rope_frequencies(plain).inverse;
  const auto yarn = rope_frequencies(config);
  EXPECT_NEAR(yarn.attention_factor, 0.1 * std::log(16.0) + 1, 1e-15);
  EXPECT_DOUBLE_EQ(yarn.inverse[0], before[0]);
  EXPECT_DOUBLE_EQ(yarn.inverse[20], before[20]);
  EXPECT_DOUBLE_EQ(yarn.inverse[33], before[33] * (0.5 + 0.5 / 16));  // half way
  EXPECT_DOUBLE_EQ(yarn.inverse[46], before[46] / 16);
  EXPECT_DOUBLE_EQ(yarn.inverse[63], before[63] / 16);

  config.yarn->truncate = false;  // from 20.94 to 45.03: pair 21 has just begun to change
  const auto exact = rope_frequencies(config).inverse;
  const double low = 64 * std::log(4096 / (32 * 2 * M_PI)) / std::log(10000);
  const double high = 64 * std::log(4096 / (2 * M_PI)) / std::log(10000);
  const double ramp = (21 - low) / (high - low);
  EXPECT_NEAR(exact[21], before[21] * (1 - ramp + ramp / 16), 1e-15);
  EXPECT_DOUBLE_EQ(exact[46], before[46] / 16);
}

TEST(RopeFrequencies, YarnMagnitudesCancelOrReplaceEachOther) {
  RopeConfig config{.head_dim = 64};
  config.yarn = YarnScaling{.factor = 40, .mscale = 1, .mscale_all_dim = 1};  // DeepSeek-V3
  EXPECT_DOUBLE_EQ(rope_frequencies(config).attention_factor, 1);
  config.yarn->mscale = 0.707;
  EXPECT_DOUBLE_EQ(rope_frequencies(config).attention_factor,
                   (0.0707 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1));
  config.yarn->attention_factor = 1.5;
  EXPECT_DOUBLE_EQ(rope_frequencies(config).attention_factor, 1.5);
}

TEST(RopeTable, HoldsCosinesThenSines) {
  RopeConfig config{.head_dim = 4, .base = 100};
  config.yarn = YarnScaling{.factor = 1, .attention_factor = 2};
  const Tensor table = rope_table(config, 3, DType::f64, test_device());
  EXPECT_EQ(table.shape(), Shape({3, 2, 2}));
  const auto values = to_values(table);
  EXPECT_DOUBLE_EQ(values[0], 2);                      // position 0: cos 0
  EXPECT_DOUBLE_EQ(values[2], 0);                      // sin 0
  EXPECT_DOUBLE_EQ(values[8 + 1], 2 * std::cos(0.2));  // position 2, pair 1
  EXPECT_DOUBLE_EQ(values[8 + 2], 2 * std::sin(2.0));  // pair 0
}

TEST(RopeFrequencies, RefuseHalfAPair) {
  EXPECT_EQ(
      error_of([] { rope_frequencies({.head_dim = 6, .percent = 0.5}); }),
      "rope: a head of 6 with percent 0.5 turns 3 channels, but they come in pairs within the "
      "head");
}

}  // namespace
}  // namespace phx::kernels
