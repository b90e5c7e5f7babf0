#include "phalanx/ops/head_norm.h"

#include <gtest/gtest.h>

#include "phalanx/ops/rms_norm.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr PackedHeads kHeads{.n = 3, .g = 1, .d = 4};

Tensor normed(std::span<const Tensor> in) {
  return head_norm(in[0], in[1], in[2], kHeads, {.eps = 1e-6, .zero_centred = true});
}

TEST(HeadNorm, IsRmsNormOfEachQueryAndKeyHeadAndLeavesValuesAlone) {
  const Tensor x = randn({2, 1, 20}, Seed{1}), wq = randn({4}, Seed{2}), wk = randn({4}, Seed{3});
  const auto y = to_values(head_norm(x, wq, wk, kHeads, {.eps = 1e-6}));
  const Tensor single = x.reshape({10, 4});
  const auto q = to_values(rms_norm(single, wq, {.eps = 1e-6}));
  const auto k = to_values(rms_norm(single, wk, {.eps = 1e-6}));
  const auto plain = to_values(x);
  for (int row = 0; row < 2; ++row)
    for (int i = 0; i < 20; ++i) {
      const int at = row * 20 + i;
      EXPECT_DOUBLE_EQ(y[at], i < 12 ? q[at] : i < 16 ? k[at] : plain[at]) << at;
    }
}

TEST(HeadNorm, GradientsMatchFiniteDifferences) {
  expect_gradients_match(normed,
                         {randn({3, 2, 20}, Seed{1}), randn({4}, Seed{2}), randn({4}, Seed{3})});
}

TEST(HeadNorm, MetaAllocatesLikeCpu) {
  expect_meta_allocates_like_cpu([](Device device) {
    gradients_of(normed, std::vector<Tensor>{empty({5, 2, 20}, DType::f32, device),
                                             empty({4}, DType::f32, device),
                                             empty({4}, DType::f32, device)});
  });
}

PHX_CUDA_TEST(HeadNorm, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const PackedHeads heads{.n = 6, .g = 2, .d = 24};
    expect_cuda_matches_cpu(
        [&](std::span<const Tensor> in) { return head_norm(in[0], in[1], in[2], heads); },
        {randn({37, 3, 240}, Seed{1}, dtype), randn({24}, Seed{2}, dtype),
         randn({24}, Seed{3}, dtype)},
        dtype == DType::f32
            ? 1e-5
            : 2e-2);  // f32: another order of sums; bf16: one rounding of 8 bits each way
  }
}

TEST(HeadNorm, RefusesHeadsThatDoNotFillTheTensor) {
  const std::string message = error_of([] {
    head_norm(randn({2, 16}, Seed{1}), randn({4}, Seed{2}), randn({4}, Seed{3}), kHeads);
  });
  EXPECT_EQ(message, "head_norm: qkv is [2, 16], but 3 + 2 * 1 heads of 4 make 20");
}

}  // namespace
}  // namespace phx
