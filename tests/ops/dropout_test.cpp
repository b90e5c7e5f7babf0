#include "phalanx/ops/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr RandomSite kSite{
    .seed = 7, .site = 11, .step = 3, .samples = {.first = 100}, .first_position = 50};

Tensor ones(const Shape& shape) {
  return from_values(std::vector<double>(shape.numel(), 1.0), shape, DType::f64, test_device());
}

// Element (s, b, c) of ones after dropout, from the definition alone.
double expected(const RandomSite& site, int64_t sample, int64_t position, int64_t c, double p) {
  const Philox4 words = philox4x32(philox_key(site.seed, site.site, site.step), uint32_t(sample),
                                   uint32_t(position), uint32_t(c / 4), 0);
  return uniform_from(words.x[c % 4]) >= float(p) ? 1 / (1 - p) : 0;
}

TEST(Dropout, ElementsFollowTheirGlobalIndices) {
  const auto y = to_values(dropout(ones({3, 2, 7}), 0.25, kSite));
  for (int64_t s = 0; s < 3; ++s)
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t c = 0; c < 7; ++c)
        EXPECT_DOUBLE_EQ(y[(s * 2 + b) * 7 + c], expected(kSite, 100 + b, 50 + s, c, 0.25));
}

TEST(Dropout, DropsAboutAFractionP) {
  const auto y = to_values(dropout(ones({40, 25, 100}), 0.3, kSite));
  double kept = 0;
  for (double value : y) kept += value != 0;
  // 100000 draws: the standard deviation of the fraction is sqrt(0.21 / 100000) = 0.0014.
  EXPECT_NEAR(kept / double(y.size()), 0.7, 5 * 0.0014);
}

TEST(Dropout, APieceOfTheSequenceGetsItsPieceOfTheMask) {
  const Tensor whole = dropout(ones({6, 2, 8}), 0.5, kSite);
  RandomSite later = kSite;
  later.first_position += 4;
  expect_close(dropout(ones({2, 2, 8}), 0.5, later), whole.rows(4, 2), 0);
  // Two chunks, as in context parallelism: positions 1, 2 and 4, 5.
  RandomSite chunks = kSite;
  chunks.first_position += 1;
  chunks.split = 2;
  chunks.position_after_split = kSite.first_position + 4;
  const Tensor both = dropout(ones({4, 2, 8}), 0.5, chunks);
  expect_close(both.rows(0, 2), whole.rows(1, 2), 0);
  expect_close(both.rows(2, 2), whole.rows(4, 2), 0);
}

TEST(Dropout, SamplesOfOneRowAndSamplesApartGetTheirOwnMasks) {
  RandomSite site = kSite;
  site.first_position = 0;
  site.samples = {.first = 100, .stride = 5};
  const Tensor apart = dropout(ones({6, 2, 8}), 0.5, site);
  RandomSite row = site;
  row.samples.tokens = 6;
  const Tensor packed = dropout(ones({12, 1, 8}), 0.5, row);
  // The second half of that row, as a rank that holds it would draw it.
  row.first_position = 6;
  expect_close(dropout(ones({6, 1, 8}), 0.5, row), packed.rows(6, 6), 0);
  const auto apart_values = to_values(apart), packed_values = to_values(packed);
  for (int64_t s = 0; s < 6; ++s)
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t c = 0; c < 8; ++c) {
        const double value = expected(site, 100 + 5 * b, s, c, 0.5);
        EXPECT_DOUBLE_EQ(apart_values[size_t((s * 2 + b) * 8 + c)], value);
        EXPECT_DOUBLE_EQ(packed_values[size_t((b * 6 + s) * 8 + c)], value);
      }
}

TEST(Dropout, SitesAndStepsDrawDifferently) {
  const auto y = to_values(dropout(ones({4, 4, 64}), 0.5, kSite));
  RandomSite site = kSite;
  site.site = 12;
  EXPECT_NE(y, to_values(dropout(ones({4, 4, 64}), 0.5, site)));
  site = kSite;
  site.step = 4;
  EXPECT_NE(y, to_values(dropout(ones({4, 4, 64}), 0.5, site)));
}

TEST(Dropout, GradientsMatchFiniteDifferences) {
  expect_gradients_match([](std::span<const Tensor> in) { return dropout(in[0], 0.4, kSite); },
                         {randn({3, 2, 9}, Seed{1})});
}

// The second backward adds to the gradient of the first.
Function used_twice() {
  return [](std::span<const Tensor> in) {
    RandomSite other = kSite;
    other.site = 12;
    return bias_dropout_add(dropout(in[0], 0.4, kSite), in[0], in[1], 0.3, other);
  };
}

TEST(Dropout, AddsToAGradientThatIsThere) {
  expect_gradients_match(used_twice(), {randn({3, 2, 9}, Seed{1}), randn({9}, Seed{2})});
}

PHX_CUDA_TEST(Dropout, CudaAddsToAGradientThatIsThere) {
  for (int64_t h : {7, 64})  // f32: the bias's sum in another order
    expect_cuda_matches_cpu(
        used_twice(), {randn({37, 3, h}, Seed{1}, DType::f32), randn({h}, Seed{2}, DType::f32)},
        1e-6);
}

TEST(BiasDropoutAdd, IsTheSumOfItsParts) {
  const Tensor x = randn({3, 2, 9}, Seed{1}), y = randn({3, 2, 9}, Seed{2});
  const Tensor bias = randn({9}, Seed{3});
  const auto a = to_values(x), b = to_values(y), c = to_values(bias);
  for (double p : {0.0, 0.4}) {
    const auto mask = to_values(dropout(ones({3, 2, 9}), p, kSite));
    std::vector<double> sum(a.size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = a[i] + mask[i] * (b[i] + c[i % 9]);
    // A rounding or two of f64 (2^-53 each).
    expect_close(bias_dropout_add(x, y, bias, p, kSite),
                 from_values(sum, {3, 2, 9}, DType::f64, test_device()), 1e-15);
  }
}

TEST(BiasDropoutAdd, GradientsMatchFiniteDifferences) {
  for (double p : {0.0, 0.4}) {
    expect_gradients_match(
        [p](std::span<const Tensor> in) { return bias_dropout_add(in[0], in[1], in[2], p, kSite); },
        {randn({19, 2, 9}, Seed{1}), randn({19, 2, 9}, Seed{2}), randn({9}, Seed{3})});
    expect_gradients_match(
        [p](std::span<const Tensor> in) {
          return bias_dropout_add(in[0], in[1], Tensor(), p, kSite);
        },
        {randn({3, 2, 9}, Seed{1}), randn({3, 2, 9}, Seed{2})});
  }
}

TEST(BiasDropoutAdd, MetaAllocatesLikeCpu) {
  for (double p : {0.0, 0.1}) {
    expect_meta_allocates_like_cpu([p](Device device) {
      gradients_of(
          [p](std::span<const Tensor> in) {
            return bias_dropout_add(in[0], dropout(in[1], p, kSite), in[2], p, kSite);
          },
          std::vector<Tensor>{empty({33, 2, 24}, DType::f32, device),
                              empty({33, 2, 24}, DType::f32, device),
                              empty({24}, DType::f32, device)});
    });
  }
}

PHX_CUDA_TEST(BiasDropoutAdd, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (int64_t h : {7, 64, 1000}) {
      // The masks agree to the bit. f32: the sum over rows in another order; 16 bits: one rounding
      // to 8 or 11 bits that may fall to either side.
      const double tolerance = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 1e-3 : 8e-3;
      expect_cuda_matches_cpu(
          [](std::span<const Tensor> in) {
            return bias_dropout_add(in[0], dropout(in[1], 0.2, kSite), in[2], 0.1, kSite);
          },
          {randn({37, 3, h}, Seed{1}, dtype), randn({37, 3, h}, Seed{2}, dtype),
           randn({h}, Seed{3}, dtype)},
          tolerance);
    }
  }
}

TEST(Dropout, RefusesToDropEverything) {
  EXPECT_EQ(error_of([] {
              dropout(randn({2, 2, 7}, Seed{1}), 1.0, kSite);
            }),
            "dropout: p is 1, but should be in [0, 1)");
}

}  // namespace
}  // namespace phx
