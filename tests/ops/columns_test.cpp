#include "phalanx/ops/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::ElementsAre;

TEST(Columns, AreSplitAndJoined) {
  const Tensor x =
      from_values(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}, DType::f32, test_device());
  const auto [left, right] = split_columns(x, 1);
  EXPECT_THAT(to_values(left), ElementsAre(1, 4));
  EXPECT_THAT(to_values(right), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(to_values(join_columns(right, left)), ElementsAre(2, 3, 1, 5, 6, 4));
}

TEST(Columns, GradientsMatchFiniteDifferences) {
  expect_gradients_match([](std::span<const Tensor> in) { return join_columns(in[0], in[1]); },
                         {randn({2, 3, 4}, Seed{1}), randn({2, 3, 2}, Seed{2})});
  expect_gradients_match(
      [](std::span<const Tensor> in) {
        const auto [left, right] = split_columns(in[0], 1);
        return join_columns(right, left);
      },
      {randn({2, 3, 4}, Seed{1})});
}

TEST(Columns, OfOtherRowsOrTypesAreNotJoined) {
  const Tensor a = randn({2, 3}, Seed{1}, DType::f32);
  EXPECT_EQ(error_of([&] {
              join_columns(a, randn({3, 3}, Seed{1}, DType::f32));
            }),
            "join_columns: a is [2, 3] of f32 and b [3, 3] of f32, but they should have the same "
            "rows and type");
  EXPECT_THROW(join_columns(a, randn({2, 3}, Seed{1})), Error);
}

PHX_CUDA_TEST(Columns, CudaMatchesCpu) {
  for (const DType dtype : {DType::f32, DType::bf16})
    expect_cuda_matches_cpu([](std::span<const Tensor> in) { return join_columns(in[0], in[1]); },
                            {randn({5, 3, 40}, Seed{1}, dtype), randn({5, 3, 24}, Seed{2}, dtype)},
                            0);
}

}  // namespace
}  // namespace phx
