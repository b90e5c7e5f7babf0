#include "phalanx/ops/wide_norm.h"

#include <gtest/gtest.h>

#include "phalanx/ops/rms_norm.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr WideParts kParts{.q = 12, .k = 4, .all_q = 12, .all_k = 4};

Tensor normed(std::span<const Tensor> in) {
  return wide_norm(in[0], in[1], in[2], kParts, {.eps = 1e-6, .zero_centred = true});
}

TEST(WideNorm, IsRmsNormOfAllQueriesAndOfAllKeysAndLeavesValuesAlone) {
  const Tensor x = randn({2, 1, 20}, Seed{1}), wq = randn({12}, Seed{2}), wk = randn({4}, Seed{3});
  const auto y = to_values(wide_norm(x, wq, wk, kParts, {.eps = 1e-6}));
  const auto plain = to_values(x);
  for (int row = 0; row < 2; ++row) {
    const auto part = [&](int first, int count) {
      const std::vector<double> some(plain.begin() + row * 20 + first,
                                     plain.begin() + row * 20 + first + count);
      return from_values(some, {1, count}, x.dtype(), test_device());
    };
    const auto q = to_values(rms_norm(part(0, 12), wq, {.eps = 1e-6}));
    const auto k = to_values(rms_norm(part(12, 4), wk, {.eps = 1e-6}));
    for (int i = 0; i < 20; ++i)
      EXPECT_NEAR(y[row * 20 + i],
                  i < 12   ? q[i]
                  : i < 16 ? k[i - 12]
                           : plain[row * 20 + i],
                  1e-14)
          << row << " " << i;
  }
}

TEST(WideNorm, GradientsMatchFiniteDifferences) {
  expect_gradients_match(normed,
                         {randn({3, 2, 20}, Seed{1}), randn({12}, Seed{2}), randn({4}, Seed{3})});
}

TEST(WideNorm, MetaAllocatesLikeCpu) {
  expect_meta_allocates_like_cpu([](Device device) {
    gradients_of(normed, std::vector<Tensor>{empty({5, 2, 20}, DType::f32, device),
                                             empty({12}, DType::f32, device),
                                             empty({4}, DType::f32, device)});
  });
}

PHX_CUDA_TEST(WideNorm, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const WideParts parts{.q = 321, .k = 77, .all_q = 321, .all_k = 77};
    expect_cuda_matches_cpu(
        [&](std::span<const Tensor> in) { return wide_norm(in[0], in[1], in[2], parts); },
        {randn({37, 3, 475}, Seed{1}, dtype), randn({321}, Seed{2}, dtype),
         randn({77}, Seed{3}, dtype)},
        dtype == DType::f32
            ? 1e-5
            : 2e-2);  // f32: another order of sums; bf16: one rounding of 8 bits each way
  }
}

TEST(WideNorm, RefusesWeightsOfAnotherWidth) {
  const std::string message = error_of([] {
    wide_norm(randn({2, 20}, Seed{1}), randn({4}, Seed{2}), randn({4}, Seed{3}), kParts);
  });
  EXPECT_EQ(message, "wide_norm: q has 12 channels and k 4, but the weights are [4] and [4]");
}

}  // namespace
}  // namespace phx
