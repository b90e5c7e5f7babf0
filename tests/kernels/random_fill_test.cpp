#include "phalanx/kernels/random_fill.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/core/philox.h"
#include "support/gradients.h"

namespace phx::kernels {
namespace {

using namespace phx::testing;

constexpr NormalFill kFill{.seed = 5, .site = 17, .std = 0.02};

Tensor filled(const Shape& shape, DType dtype, Device device = test_device()) {
  Tensor x = zeros(shape, dtype, device);
  fill_normal(x, whole_box(x), kFill);
  return x;
}

TEST(RandomFill, ElementsFollowTheirGlobalIndices) {
  Tensor x = zeros({4, 9}, DType::f64, test_device());
  const int64_t far = (int64_t{1} << 33) + 5;  // a row past 32 bits
  fill_normal(x, {.row = 1, .rows = 2, .col = 3, .cols = 5, .global_row = far, .global_col = 6},
              kFill);
  const auto values = to_values(x);
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t c = 0; c < 9; ++c) {
      double expected = 0;  // outside of the box nothing is touched
      if (r >= 1 && r < 3 && c >= 3 && c < 8) {
        const uint64_t row = uint64_t(far + r - 1);
        const int64_t col = 6 + c - 3;
        const Philox4 words = philox4x32(philox_key(5, 17, 0), uint32_t(row), uint32_t(row >> 32),
                                         uint32_t(col / 4), 0);
        expected = normal_from(words.x[col % 4]) * 0.02f;
      }
      EXPECT_EQ(values[r * 9 + c], expected) << "element " << r << ", " << c;
    }
  }
}

TEST(RandomFill, PiecesMakeUpTheWhole) {
  const Tensor whole = filled({6, 10}, DType::bf16);
  Tensor pieces = zeros({6, 10}, DType::bf16, test_device());
  for (int64_t row : {0, 2, 4}) {
    for (int64_t col : {0, 5}) {
      Tensor piece = zeros({2, 5}, DType::bf16, test_device());
      FillBox box = whole_box(piece);
      box.global_row = row;
      box.global_col = col;
      fill_normal(piece, box, kFill);
      for (int64_t r = 0; r < 2; ++r)
        for (int64_t c = 0; c < 5; ++c)
          pieces.data<bf16>()[(row + r) * 10 + col + c] = piece.data<bf16>()[r * 5 + c];
    }
  }
  EXPECT_EQ(to_values(pieces), to_values(whole));
}

TEST(RandomFill, TypesDifferByOneRoundingOnly) {
  const auto wide = to_values(filled({7, 30}, DType::f64));
  EXPECT_EQ(to_values(filled({7, 30}, DType::f32)), wide);
  const auto narrow = to_values(filled({7, 30}, DType::bf16));
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(narrow[i], double(bf16(float(wide[i]))));
}

TEST(RandomFill, HasTheGivenStandardDeviation) {
  const auto values = to_values(filled({200, 500}, DType::f32));
  double sum = 0, square = 0;
  for (double value : values) {
    sum += value;
    square += value * value;
  }
  const double n = double(values.size());
  // n = 100000: the mean is off by std / sqrt(n), the deviation by std / sqrt(2 n), times five.
  EXPECT_NEAR(sum / n, 0, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(square / n), 0.02, 5 * 0.02 / std::sqrt(2 * n));
}

TEST(RandomFill, ConstantsFillTheirBoxOnly) {
  Tensor x = zeros({2, 4}, DType::f32, test_device());
  fill_constant(x, {.row = 1, .rows = 1, .col = 1, .cols = 2}, 3);
  EXPECT_EQ(to_values(x), (std::vector<double>{0, 0, 0, 0, 0, 3, 3, 0}));
  Tensor vector = zeros({5}, DType::f32, test_device());
  fill_constant(vector, whole_box(vector), 1);
  EXPECT_EQ(to_values(vector), std::vector<double>(5, 1.0));
}

PHX_CUDA_TEST(RandomFill, CudaGivesTheSameBits) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const FillBox& box :
         {FillBox{.row = 0, .rows = 37, .col = 0, .cols = 1001},
          FillBox{
              .row = 3, .rows = 20, .col = 7, .cols = 501, .global_row = 1000, .global_col = 18}}) {
      Tensor a = zeros({37, 1001}, dtype, test_device());
      Tensor b = zeros({37, 1001}, dtype, cuda_test_runtime().device());
      fill_normal(a, box, kFill);
      fill_normal(b, box, kFill);
      EXPECT_EQ(to_values(a), to_values(b));
      fill_constant(a, box, 0.3);
      fill_constant(b, box, 0.3);
      EXPECT_EQ(to_values(a), to_values(b));
    }
  }
}

TEST(RandomFill, RefusesABoxOutsideOfTheTensor) {
  EXPECT_EQ(error_of([] {
              Tensor x = zeros({4, 6}, DType::f32, test_device());
              fill_normal(x, {.row = 3, .rows = 2, .col = 0, .cols = 6}, kFill);
            }),
            "fill: rows [3, 5) and columns [0, 6) are not inside of [4, 6]");
}

}  // namespace
}  // namespace phx::kernels
