#include "phalanx/ops/latent_keys.h"

#include <gtest/gtest.h>

#include "phalanx/ops/columns.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr LatentHeads kHeads{.n = 2, .plain = 2, .turned = 1, .value = 3};

Tensor joined(std::span<const Tensor> in) { return latent_keys(in[0], in[1], kHeads); }

TEST(LatentKeys, EveryKeyHeadEndsWithTheSharedChannelsAndValuesFollowAllKeys) {
  const Tensor up = from_values(std::vector<double>{1, 2, 10, 20, 30, 3, 4, 40, 50, 60}, {1, 1, 10},
                                DType::f64, test_device());
  const Tensor shared = from_values(std::vector<double>{7}, {1, 1, 1}, DType::f64, test_device());
  EXPECT_EQ(to_values(latent_keys(up, shared, kHeads)),
            (std::vector<double>{1, 2, 7, 3, 4, 7, 10, 20, 30, 40, 50, 60}));
}

TEST(LatentKeys, GradientsMatchFiniteDifferences) {
  expect_gradients_match(joined, {randn({3, 2, 10}, Seed{1}), randn({3, 2, 1}, Seed{2})});
}

TEST(LatentKeys, MetaAllocatesLikeCpu) {
  expect_meta_allocates_like_cpu([](Device device) {
    gradients_of(joined, std::vector<Tensor>{empty({5, 2, 10}, DType::f32, device),
                                             empty({5, 2, 1}, DType::f32, device)});
  });
}

PHX_CUDA_TEST(LatentKeys, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const LatentHeads heads{.n = 5, .plain = 23, .turned = 10, .value = 17};
    expect_cuda_matches_cpu(
        [&](std::span<const Tensor> in) { return latent_keys(in[0], in[1], heads); },
        {randn({37, 3, 200}, Seed{1}, dtype), randn({37, 3, 10}, Seed{2}, dtype)},
        dtype == DType::f32 ? 1e-6 : 1e-2);  // copies, and sums of five; bf16: one rounding
  }
}

TEST(LatentKeys, RefusesTensorsOfOtherWidths) {
  const std::string message = error_of([] {
    latent_keys(randn({2, 1, 9}, Seed{1}), randn({2, 1, 1}, Seed{2}), kHeads);
  });
  EXPECT_EQ(
      message,
      "latent_keys: with 2 heads of 2 + 1 and 3 channels up and shared should be [.., 10] and "
      "[.., 1], but they are [2, 1, 9] and [2, 1, 1]");
}

TEST(SplitColumns, GivesBothSidesAndTheirGradients) {
  const Tensor x =
      from_values(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}, DType::f64, test_device());
  const auto [left, right] = split_columns(x, 1);
  EXPECT_EQ(to_values(left), (std::vector<double>{1, 4}));
  EXPECT_EQ(to_values(right), (std::vector<double>{2, 3, 5, 6}));
  for (const bool first : {true, false})  // one side alone, too: the other's gradient is zero
    expect_gradients_match(
        [first](std::span<const Tensor> in) {
          const auto [a, b] = split_columns(in[0], 2);
          return first ? a : b;
        },
        {randn({3, 2, 5}, Seed{1})});
}

TEST(SplitColumns, RefusesAnEmptySide) {
  EXPECT_EQ(error_of([] {
              split_columns(randn({2, 3}, Seed{1}), 3);
            }),
            "split_columns: x is [2, 3], which has no columns on both sides of column 3");
}

}  // namespace
}  // namespace phx
