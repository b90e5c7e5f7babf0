#include "phalanx/kernels/attention_merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "phalanx/kernels/attention.h"
#include "phalanx/kernels/elementwise.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using Values = std::vector<double>;

Tensor values(const Values& all, const Shape& shape, DType dtype = DType::f64) {
  return from_values(all, shape, dtype, test_device());
}

TEST(AttentionMerge, WeighsEachPartByWhatItsScoresSumTo) {
  // Two heads of one channel, one row. Head 0: the part has three times the weight. Head 1: half.
  const Tensor part = values({8, 6}, {1, 1, 2}), part_lse = values({std::log(3.0), 0}, {1, 2, 1});
  const Tensor o = values({4, 2}, {1, 1, 2}), lse = values({0, 0}, {1, 2, 1});
  kernels::merge_attention(part, part_lse, o, lse);
  EXPECT_DOUBLE_EQ(to_values(o)[0], 7);
  EXPECT_DOUBLE_EQ(to_values(o)[1], 4);
  EXPECT_DOUBLE_EQ(to_values(lse)[0], std::log(4.0));
  EXPECT_DOUBLE_EQ(to_values(lse)[1], std::log(2.0));
}

TEST(AttentionMerge, ScoresOfAnySizeDoNotOverflow) {
  const Tensor part = values({1}, {1, 1, 1}), part_lse = values({5000}, {1, 1, 1});
  const Tensor o = values({3}, {1, 1, 1}), lse = values({5000}, {1, 1, 1});
  kernels::merge_attention(part, part_lse, o, lse);
  EXPECT_NEAR(to_values(o)[0], 2, 4e-12);  // weights are as exact as 5000 is: 5e-13 of it each
  EXPECT_DOUBLE_EQ(to_values(lse)[0], 5000 + std::log(2.0));
}

TEST(AttentionMerge, APartInWhichAQuerySawNothingChangesNothing) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  for (const double nothing : {kNothing, -1e30}) {
    Tensor o = values({3}, {1, 1, 1}), lse = values({-2}, {1, 1, 1});
    kernels::merge_attention(values({7}, {1, 1, 1}), values({nothing}, {1, 1, 1}), o, lse);
    EXPECT_EQ(to_values(o)[0], 3);
    EXPECT_EQ(to_values(lse)[0], -2);
    o = values({7}, {1, 1, 1}), lse = values({nothing}, {1, 1, 1});
    kernels::merge_attention(values({3}, {1, 1, 1}), values({-2}, {1, 1, 1}), o, lse);
    EXPECT_EQ(to_values(o)[0], 3);
    EXPECT_EQ(to_values(lse)[0], -2);
  }
}

// Heads of whole warps of channels, and of fewer.
PHX_CUDA_TEST(AttentionMerge, CudaMatchesCpu) {
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const int64_t d : {64, 12, 3}) {
      const Shape shape{70, 2, 4 * d}, of_rows{2, 4, 70};
      const auto run = [&](Device device) {
        const Tensor part = randn(shape, Seed{1}, dtype, device);
        const Tensor o = randn(shape, Seed{2}, DType::f32, device);
        const Tensor part_lse = randn(of_rows, Seed{3}, DType::f32, device);
        const Tensor lse = randn(of_rows, Seed{4}, DType::f32, device);
        kernels::merge_attention(part, part_lse, o, lse);
        return std::pair(from_values(to_values(o), shape, DType::f64, test_device()),
                         from_values(to_values(lse), of_rows, DType::f64, test_device()));
      };
      const auto cuda = run(cuda_test_runtime().device()), cpu = run(test_device());
      expect_close(cuda.first, cpu.first, 1e-6);  // a few roundings to f32
      expect_close(cuda.second, cpu.second, 1e-6);
    }
}

}  // namespace
}  // namespace phx
