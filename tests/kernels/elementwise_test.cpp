#include "phalanx/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr DType kAll[] = {DType::f64,    DType::f32, DType::bf16, DType::f16, DType::f8e4m3,
                          DType::f8e5m2, DType::i64, DType::i32,  DType::u16, DType::u8};

TEST(Elementwise, SmallWholeNumbersSurviveEveryCast) {
  const std::vector<double> values = {0, 1, 2, 3, 4, 6, 8, 12, 14, 16, 24, 48};  // exact in all
  for (DType from : kAll) {
    for (DType to : kAll) {
      const Tensor wide = from_values(values, {12}, DType::f64, test_device());
      Tensor x = empty({12}, from, test_device()), y = empty({12}, to, test_device());
      kernels::cast(wide, x);
      kernels::cast(x, y);
      Tensor back = empty({12}, DType::f64, test_device());
      kernels::cast(y, back);
      EXPECT_EQ(to_values(back), values) << from << " to " << to;
    }
  }
}

TEST(Elementwise, CastsRoundToNearestEvenAndF8Saturates) {
  const Tensor x = from_values(std::vector<double>{1.0 + 0x1p-8, 1.0 + 3 * 0x1p-8, 1000.0, -1e9},
                               {4}, DType::f32, test_device());
  Tensor y = empty({4}, DType::bf16, test_device());
  kernels::cast(x, y);
  EXPECT_EQ(to_values(y)[0], 1.0);           // a tie, to the even neighbour below
  EXPECT_EQ(to_values(y)[1], 1.0 + 0x1p-6);  // a tie, to the even neighbour above
  Tensor small = empty({4}, DType::f8e4m3, test_device());
  kernels::cast(x, small);
  Tensor wide = empty({4}, DType::f64, test_device());
  kernels::cast(small, wide);
  EXPECT_EQ(to_values(wide)[2], 448.0);
  EXPECT_EQ(to_values(wide)[3], -448.0);
}

TEST(Elementwise, TransposesMatricesAndRows) {
  for (DType dtype : {DType::u8, DType::bf16, DType::i32, DType::f64}) {
    for (const Shape& shape : {Shape{37, 70}, Shape{5, 3, 4}, Shape{2, 3, 2, 2}, Shape{1, 9}}) {
      const Tensor x = rand_ints(shape, 200, Seed{1}, DType::i64);
      Tensor in = empty(shape, dtype, test_device());
      kernels::cast(x, in);
      Shape swapped = shape;
      swapped.set(0, shape[1]);
      swapped.set(1, shape[0]);
      Tensor out = empty(swapped, dtype, test_device());
      kernels::transpose(in, out);
      Tensor y = empty(swapped, DType::i64, test_device()),
             z = empty(shape, DType::i64, test_device());
      kernels::cast(out, y);
      kernels::cast(in, z);
      const int64_t a = shape[0], b = shape[1], inner = shape.numel() / (a * b);
      for (int64_t i = 0; i < a; ++i)
        for (int64_t j = 0; j < b; ++j)
          for (int64_t l = 0; l < inner; ++l)
            ASSERT_EQ(y.data<int64_t>()[(j * a + i) * inner + l],
                      z.data<int64_t>()[(i * b + j) * inner + l]);
    }
  }
}

TEST(Elementwise, AddsScalesAndFills) {
  const Tensor a = from_values(std::vector<double>{1, -2}, {2}, DType::f64, test_device());
  const Tensor b = from_values(std::vector<double>{10, 20}, {2}, DType::f64, test_device());
  Tensor y = empty({2}, DType::f64, test_device());
  kernels::add(a, b, y);
  EXPECT_EQ(to_values(y), (std::vector<double>{11, 18}));
  kernels::scale(a, 3.0, {y});
  EXPECT_EQ(to_values(y), (std::vector<double>{3, -6}));
  kernels::scale(b, 0.5, {y, 1.f});
  EXPECT_EQ(to_values(y), (std::vector<double>{8, 4}));
  for (DType dtype : kAll) {
    Tensor filled = empty({5}, dtype, test_device()), back = empty({5}, DType::f64, test_device());
    kernels::fill(filled, 3);
    kernels::cast(filled, back);
    EXPECT_EQ(to_values(back), std::vector<double>(5, 3.0)) << dtype;
  }
}

TEST(Elementwise, RefusesToAddUnlikeTensors) {
  const std::string message = error_of([] {
    Tensor y = empty({2}, DType::f64, test_device());
    kernels::add(randn({2}, Seed{1}), randn({3}, Seed{1}), y);
  });
  EXPECT_EQ(message,
            "add: a is [2] of f64, b is [3] of f64 and y is [2] of f64; they should be alike");
}

PHX_CUDA_TEST(Elementwise, CudaCastsLikeCpu) {
  const Device device = cuda_test_runtime().device();
  const Tensor wide = randn({1003}, Seed{1}, DType::f32);
  for (DType from : kAll) {
    Tensor x = empty({1003}, from, test_device());
    kernels::cast(wide, x);
    // Integers made of negative floats differ between machines for unsigned types: leave those out.
    if (from == DType::u8 || from == DType::u16) kernels::fill(x, 7);
    for (DType to : kAll) {
      if (to == DType::u8 || to == DType::u16) continue;
      Tensor y = empty({1003}, to, test_device()), cuda_y = empty({1003}, to, device);
      kernels::cast(x, y);
      kernels::cast(to_device(x, device), cuda_y);
      Tensor a = empty({1003}, DType::f64, test_device()), b = empty({1003}, DType::f64, device);
      kernels::cast(y, a);
      kernels::cast(cuda_y, b);
      EXPECT_EQ(to_values(a), to_values(b)) << from << " to " << to;
    }
  }
}

PHX_CUDA_TEST(Elementwise, CudaMatchesCpuAtOddSizesAndOffsets) {
  const Device device = cuda_test_runtime().device();
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor a = randn({64, 33, 5}, Seed{1}, dtype), b = randn({64, 33, 5}, Seed{2}, dtype);
    const Tensor cuda_a = to_device(a, device), cuda_b = to_device(b, device);
    // rows(1, ..) begins 165 elements in: not at a multiple of 16 bytes.
    Tensor y = empty({63, 33, 5}, dtype, test_device()), cuda_y = empty({63, 33, 5}, dtype, device);
    kernels::add(a.rows(1, 63), b.rows(0, 63), y);
    kernels::add(cuda_a.rows(1, 63), cuda_b.rows(0, 63), cuda_y);
    expect_close(cuda_y, y, 0);
    kernels::scale(a.rows(1, 63), 0.375, {y, 1.f});
    kernels::scale(cuda_a.rows(1, 63), 0.375, {cuda_y, 1.f});
    // One rounding in another place: the fused multiply-add.
    expect_close(cuda_y, y, dtype == DType::f32 ? 1e-7 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7);
    for (const Shape& shape : {Shape{64, 165}, Shape{64, 33, 5}, Shape{33, 40, 8}}) {
      const Tensor x = randn(shape, Seed{3}, dtype);
      Shape swapped = shape;
      swapped.set(0, shape[1]);
      swapped.set(1, shape[0]);
      Tensor t = empty(swapped, dtype, test_device()), cuda_t = empty(swapped, dtype, device);
      kernels::transpose(x, t);
      kernels::transpose(to_device(x, device), cuda_t);
      expect_close(cuda_t, t, 0);
    }
  }
}

}  // namespace
}  // namespace phx
