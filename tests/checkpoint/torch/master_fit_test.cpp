#include "phalanx/checkpoint/torch/master_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/temp_folder.h"

namespace phx {
namespace {

// The rule of folders and of buckets alike: some Adams do not round to nearest even.
TEST(MasterFit, SixteenBitWeightsMayBeOffByOneLastPlace) {
  const auto fits = [](auto weight, float master) {
    using T = decltype(weight);
    const std::span<const T> one(&weight, 1);
    return !master_misfit(dtype_of<T>(), std::as_bytes(one), std::span(&master, 1));
  };
  EXPECT_TRUE(fits(bf16(1.0f), 1.0f + 0x1p-7f * 0.9f));
  EXPECT_FALSE(fits(bf16(1.0f), 1.0f + 0x1p-7f * 1.1f));
  EXPECT_TRUE(fits(f16(1.0f), 1.0f + 0x1p-10f * 0.9f));
  EXPECT_FALSE(fits(f16(1.0f), 1.0f + 0x1p-10f * 1.1f));
  EXPECT_TRUE(fits(f16(0x1p-24f), 1e-9f));  // denormals
  EXPECT_FALSE(fits(1.0f, std::nextafter(1.0f, 2.0f)));
  EXPECT_FALSE(fits(bf16(1.0f), std::numeric_limits<float>::quiet_NaN()));
}

TEST(MasterFit, TheFirstMisfitIsToldWithBothNumbers) {
  const float masters[] = {1.0f, 2.0f, 3.0f, 5.0f};
  const bf16 weights[] = {bf16(1.0f), bf16(2.0f), bf16(4.0f), bf16(6.0f)};
  const auto misfit = master_misfit(DType::bf16, std::as_bytes(std::span(weights)), masters);
  ASSERT_TRUE(misfit);
  EXPECT_EQ(misfit->index, 2u);
  EXPECT_EQ(misfit->weight, 4.0f);
  EXPECT_EQ(misfit->master, 3.0f);
}

TEST(MasterFit, InfinitiesAndNansFitThemselves) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float masters[] = {kInfinity, NAN, 1e30f};
  const f16 weights[] = {f16(kInfinity), f16(NAN), f16(1e30f)};  // the last one overflows
  EXPECT_FALSE(master_misfit(DType::f16, std::as_bytes(std::span(weights)), masters));
  const float other[] = {-kInfinity, NAN, 1e30f};
  const float infinite[] = {kInfinity};
  const bf16 one[] = {bf16(1.0f)};
  EXPECT_TRUE(master_misfit(DType::bf16, std::as_bytes(std::span(one)), infinite));
  EXPECT_TRUE(master_misfit(DType::f16, std::as_bytes(std::span(weights)), other));
}

TEST(MasterFit, AsManyMastersAsWeightsAreNeeded) {
  const float masters[] = {1.0f, 2.0f};
  const bf16 weights[] = {bf16(1.0f)};
  EXPECT_EQ(
      error_of([&] { master_misfit(DType::bf16, std::as_bytes(std::span(weights)), masters); }),
      "2 masters and 2 bytes of weights");
}

}  // namespace
}  // namespace phx
