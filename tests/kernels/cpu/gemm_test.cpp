#include "phalanx/kernels/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace phx::kernels::cpu {
namespace {

// Whole numbers, so that sums are exact in any order; rows lie `gap` elements further apart.
template <class T>
struct Matrix {
  Matrix(int64_t rows, int64_t cols, int64_t gap)
      : stride(cols + gap), data(size_t(rows * stride)) {
    for (size_t i = 0; i < data.size(); ++i) data[i] = T(int(i * 7 % 11) - 5);
  }
  T at(int64_t row, int64_t col) const { return data[size_t(row * stride + col)]; }
  int64_t stride;
  std::vector<T> data;
};

template <class T>
void expect_plain_sums(int64_t m, int64_t n, int64_t k, bool ta, bool tb, T alpha, T beta) {
  const Matrix<T> a(ta ? k : m, ta ? m : k, 3), b(tb ? n : k, tb ? k : n, 1);
  Matrix<T> c(m, n, 2);
  const Matrix<T> before = c;
  gemm(m, n, k, alpha, {a.data.data(), a.stride, ta}, {b.data.data(), b.stride, tb}, beta,
       c.data.data(), c.stride);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += (ta ? a.at(l, i) : a.at(i, l)) * (tb ? b.at(j, l) : b.at(l, j));
      ASSERT_EQ(c.at(i, j), alpha * sum + beta * before.at(i, j)) << i << " " << j;
    }
    for (int64_t j = n; j < c.stride; ++j)
      ASSERT_EQ(c.at(i, j), before.at(i, j)) << "written between the rows";
  }
}

TEST(CpuGemm, IsAPlainSumInEveryTransposeWithRowsApart) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      expect_plain_sums<double>(5, 7, 3, ta, tb, 1, 0);
      expect_plain_sums<float>(5, 7, 3, ta, tb, 1, 0);
      expect_plain_sums<double>(33, 17, 40, ta, tb, 2, 1);
      expect_plain_sums<float>(33, 17, 40, ta, tb, 2, 1);
    }
  }
}

TEST(CpuGemm, OldContentsAreNotReadWithoutBeta) {
  const float a[] = {2}, b[] = {3};
  float c[] = {NAN};
  gemm(1, 1, 1, 1.f, {a, 1, false}, {b, 1, false}, 0.f, c, 1);
  EXPECT_EQ(c[0], 6.f);
  const double x[] = {2}, y[] = {3};
  double z[] = {NAN};
  gemm(1, 1, 1, 1.0, {x, 1, false}, {y, 1, false}, 0.0, z, 1);
  EXPECT_EQ(z[0], 6.0);
}

// The rows of a have no elements, so that they are 0 apart: the library takes 1 or more.
TEST(CpuGemm, AnEmptySumLeavesBetaTimesC) {
  double c[] = {5, 7};
  gemm(1, 2, 0, 1.0, {nullptr, 0, false}, {nullptr, 2, false}, 2.0, c, 2);
  EXPECT_EQ(c[0], 10.0);
  EXPECT_EQ(c[1], 14.0);
}

}  // namespace
}  // namespace phx::kernels::cpu
