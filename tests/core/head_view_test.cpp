#include "phalanx/core/head_view.h"

#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(HeadView, RowsAreAPartOfTheSequenceWithTheSameStrides) {
  const Tensor x = zeros({6, 2, 12}, DType::f32, test_device());  // [s, b, 4 heads of 3]
  const HeadView all = heads_of(x, 3, 1, 2), part = all.rows(4, 2);
  EXPECT_EQ(part.s, 2);
  EXPECT_EQ(part.data<float>(), all.data<float>() + 4 * 2 * 12);
  EXPECT_EQ(std::tuple(part.b, part.n, part.d), std::tuple(all.b, all.n, all.d));
  EXPECT_EQ(std::tuple(part.stride_s, part.stride_b, part.stride_n),
            std::tuple(all.stride_s, all.stride_b, all.stride_n));
  EXPECT_EQ(part.rows(1, 1).data<float>(), all.rows(5, 1).data<float>());
  EXPECT_EQ(all.rows(6, 0).s, 0);
}

TEST(HeadView, RowsBeyondTheSequenceAreAnError) {
  const HeadView all = heads_of(zeros({6, 2, 12}, DType::f32, test_device()), 3, 0, 4);
  EXPECT_EQ(error_of([&] { all.rows(5, 2); }), "rows [5, 7) are not inside of 6");
  EXPECT_NE(error_of([&] { all.rows(-1, 2); }), "");
  EXPECT_NE(error_of([&] {
              heads_from(zeros({6, 2, 12}, DType::f32, test_device()), 1, 3, 4);
            }),
            "");
}

}  // namespace
}  // namespace phx
