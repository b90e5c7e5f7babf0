#include "phalanx/kernels/sums.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(Sums, MatchHandWorkedValues) {
  const Tensor x =
      from_values(std::vector<double>{1, 2, 3, 4, 5, 6}, {3, 2}, DType::f64, test_device());
  Tensor columns = from_values(std::vector<double>{100, 200}, {2}, DType::f64, test_device());
  kernels::column_sums(x, {columns, 1.f});
  EXPECT_EQ(to_values(columns), (std::vector<double>{109, 212}));
  Tensor total = from_values(std::vector<double>{1000}, {1}, DType::f64, test_device());
  kernels::sum(x, {total});
  EXPECT_EQ(to_values(total)[0], 21);
  kernels::sum_of_squares(x, {total, 1.f});
  EXPECT_EQ(to_values(total)[0], 21 + 91);
}

TEST(Sums, DoNotDependOnTheNumberOfThreads) {
  std::vector<double> totals;
  std::vector<std::vector<double>> columns;
  for (int threads : {1, 2, 3}) {
    Runtime runtime({.threads = threads});
    const Tensor x = randn({1001, 211}, Seed{1}, DType::f32, runtime.device());
    Tensor total = empty({1}, DType::f64, runtime.device());
    kernels::sum_of_squares(x, {total});
    totals.push_back(to_values(total)[0]);
    Tensor sums = empty({211}, DType::f32, runtime.device());
    kernels::column_sums(x, {sums});
    columns.push_back(to_values(sums));
  }
  EXPECT_EQ(totals[0], totals[1]);
  EXPECT_EQ(totals[0], totals[2]);
  EXPECT_EQ(columns[0], columns[1]);
  EXPECT_EQ(columns[0], columns[2]);
}

TEST(Sums, MatchAPlainSumInEveryType) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = randn({777, 130}, Seed{2}, dtype);  // more than one block of 65536
    double plain = 0, squares = 0;
    for (double value : to_values(x)) {
      plain += value;
      squares += value * value;
    }
    Tensor total = empty({1}, DType::f64, test_device());
    kernels::sum(x, {total});
    EXPECT_NEAR(to_values(total)[0], plain, 1e-9);  // 1e5 terms of size 1 in f64
    kernels::sum_of_squares(x, {total});
    EXPECT_NEAR(to_values(total)[0], squares, 1e-9 * squares);
  }
}

TEST(Sums, OneInfinityShowsInTheSumOfSquares) {
  Tensor x = randn({70000}, Seed{1}, DType::f32);
  x.data<float>()[69999] = INFINITY;
  Tensor total = empty({1}, DType::f64, test_device());
  kernels::sum_of_squares(x, {total});
  EXPECT_EQ(to_values(total)[0], INFINITY);
}

PHX_CUDA_TEST(Sums, CudaMatchesCpuAtOddSizes) {
  const Device device = cuda_test_runtime().device();
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Shape& shape : {Shape{1, 1}, Shape{37, 13}, Shape{5000, 1001}, Shape{4097, 288}}) {
      const Tensor x = randn(shape, Seed{1}, dtype), cuda_x = to_device(x, device);
      Tensor sums = zeros({shape[1]}, DType::f32, test_device());
      Tensor cuda_sums = zeros({shape[1]}, DType::f32, device);
      for (float beta : {0.f, 1.f}) {
        kernels::column_sums(x, {sums, beta});
        kernels::column_sums(cuda_x, {cuda_sums, beta});
        expect_close(cuda_sums, sums, 1e-5);  // f32 sums of up to 5000 terms in another order
      }
      Tensor total = empty({1}, DType::f64, test_device()),
             cuda_total = empty({1}, DType::f64, device);
      kernels::sum_of_squares(x, {total});
      kernels::sum_of_squares(cuda_x, {cuda_total});
      expect_close(cuda_total, total, 1e-12);  // f64 sums of 5e6 positive terms in another order
      const Tensor view = x.reshape({x.numel()});
      if (view.numel() < 2) continue;  // from the second element on: not aligned
      kernels::sum_of_squares(view.rows(1, view.numel() - 1), {total});
      kernels::sum_of_squares(cuda_x.reshape({x.numel()}).rows(1, x.numel() - 1), {cuda_total});
      expect_close(cuda_total, total, 1e-12);
    }
  }
}

TEST(Sums, SquaresMayBeBeyondF32) {
  const Tensor x = from_values(std::vector<double>{0x1p70, 1}, {2}, DType::f32, test_device());
  Tensor total = empty({1}, DType::f64, test_device());
  kernels::sum_of_squares(x, {total});
  EXPECT_EQ(to_values(total)[0], 0x1p140);
}

PHX_CUDA_TEST(Sums, CudaSquaresMayBeBeyondF32) {
  const Device device = cuda_test_runtime().device();
  const Tensor x = from_values(std::vector<double>{0x1p70, 1}, {2}, DType::f32, device);
  Tensor total = empty({1}, DType::f64, device);
  kernels::sum_of_squares(x, {total});
  EXPECT_EQ(to_values(total)[0], 0x1p140);
}

}  // namespace
}  // namespace phx
