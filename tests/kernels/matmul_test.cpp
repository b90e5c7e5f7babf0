#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using kernels::matmul;
using kernels::matmul_batched;
using kernels::MatmulActivation;
using kernels::MatmulOptions;

// The definition, in double, with one rounding of the operands already behind it.
std::vector<double> plain(const Tensor& a, const Tensor& b, const MatmulOptions& options,
                          int64_t batch, int64_t m, int64_t n, int64_t k,
                          const std::vector<double>& old) {
  const auto x = to_values(a), y = to_values(b);
  const auto bias = options.bias.defined() ? to_values(options.bias) : std::vector<double>(n);
  std::vector<double> c(batch * m * n);
  for (int64_t g = 0; g < batch; ++g)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += x[g * m * k + (options.transpose_a ? l * m + i : i * k + l)] *
                 y[g * k * n + (options.transpose_b ? j * k + l : l * n + j)];
        double v = options.alpha * sum + old[(g * m + i) * n + j] + bias[j];
        if (options.activation == MatmulActivation::gelu)
          v *= 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
        c[(g * m + i) * n + j] = v;
      }
  return c;
}

struct Case {
  DType dtype = DType::f64, c_dtype = DType::f64;
  int64_t batch = 1, m = 5, n = 7, k = 3;
  float alpha = 1.f, beta = 0.f;
  bool bias = false;
  MatmulActivation activation = MatmulActivation::none;
};

// All four transposes of a case on `device` against the definition.
void expect_matches_definition(const Case& of, Device device, double tolerance) {
  for (bool transpose_a : {false, true}) {
    for (bool transpose_b : {false, true}) {
      const int64_t g = of.batch;
      const Tensor a = randn(transpose_a ? Shape{g, of.k, of.m} : Shape{g, of.m, of.k}, Seed{1},
                             of.dtype, device);
      const Tensor b = randn(transpose_b ? Shape{g, of.n, of.k} : Shape{g, of.k, of.n}, Seed{2},
                             of.dtype, device);
      Tensor c = randn({g, of.m, of.n}, Seed{3}, of.c_dtype, device);
      const std::vector<double> old =
          of.beta != 0.f ? to_values(c) : std::vector<double>(c.numel());
      const MatmulOptions options{
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .alpha = of.alpha,
          .bias = of.bias ? randn({of.n}, Seed{4}, of.c_dtype, device) : Tensor(),
          .activation = of.activation};
      if (g == 1)
        matmul(a.reshape({a.dim(1), a.dim(2)}), b.reshape({b.dim(1), b.dim(2)}), options,
               {c, of.beta});
      else
        matmul_batched(a, b, options, {c, of.beta});
      const auto expected = plain(a, b, options, g, of.m, of.n, of.k, old);
      SCOPED_TRACE(::testing::Message()
                   << "transposed " << transpose_a << transpose_b << ", " << of.dtype << " to "
                   << of.c_dtype << ", " << g << " x " << of.m << " x " << of.n << " x " << of.k);
      expect_close(c, from_values(expected, c.shape(), DType::f64, test_device()), tolerance);
    }
  }
}

// One rounding to `dtype` at the store; f32 sums of a few hundred terms err by about 1e-6.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    case DType::f32:
      return 4e-6;
    default:
      return 1e-14;
  }
}

TEST(Matmul, MatchesHandWorkedValues) {
  const Tensor a = from_values(std::vector<double>{1, 2, 3, 4}, {2, 2}, DType::f64, test_device());
  const Tensor b = from_values(std::vector<double>{5, 6, 7, 8}, {2, 2}, DType::f64, test_device());
  Tensor c = from_values(std::vector<double>{100, 0, 0, 0}, {2, 2}, DType::f64, test_device());
  matmul(a, b, {.alpha = 2.f}, {c, 1.f});
  EXPECT_EQ(to_values(c), (std::vector<double>{138, 44, 86, 100}));
  matmul(a, b, {.transpose_b = true}, {c});
  EXPECT_EQ(to_values(c), (std::vector<double>{17, 23, 39, 53}));
}

TEST(Matmul, MatchesTheDefinitionInEveryTransposeAndType) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (DType c_dtype : {dtype, acc_dtype(dtype)}) {
      Case of{.dtype = dtype, .c_dtype = c_dtype};
      const double tolerance = tolerance_of(c_dtype);
      expect_matches_definition(of, test_device(), tolerance);
      of.beta = 1.f;
      of.alpha = 0.5f;
      expect_matches_definition(of, test_device(), tolerance);
      of.bias = true;
      of.activation = MatmulActivation::gelu;
      expect_matches_definition(of, test_device(), tolerance);
      of.batch = 3;
      expect_matches_definition(of, test_device(), tolerance);
    }
  }
}

TEST(Matmul, MatchesTheDefinitionAcrossPanelsAndBlocks) {
  // 400 columns make two panels; 1030 and 1050 pass the 1024 of a widened block.
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const double tolerance = tolerance_of(dtype);
    expect_matches_definition(
        {.dtype = dtype, .c_dtype = dtype, .m = 40, .n = 401, .k = 70, .bias = true}, test_device(),
        tolerance);
    expect_matches_definition(
        {.dtype = dtype, .c_dtype = dtype, .m = 1030, .n = 17, .k = 33, .beta = 1.f}, test_device(),
        tolerance);
    expect_matches_definition(
        {.dtype = dtype, .c_dtype = acc_dtype(dtype), .m = 5, .n = 1030, .k = 1050, .beta = 1.f},
        test_device(), tolerance_of(acc_dtype(dtype)));
  }
}

TEST(Matmul, OldContentsAreNotReadWithoutBeta) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    Tensor c = from_values(std::vector<double>(6, NAN), {2, 3}, dtype, test_device());
    matmul(randn({2, 4}, Seed{1}, dtype), randn({4, 3}, Seed{2}, dtype), {}, {c});
    for (double value : to_values(c)) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(Matmul, AnEmptySumIsZero) {
  for (DType dtype : {DType::f64, DType::bf16}) {
    Tensor c = from_values(std::vector<double>{1, 2}, {2, 1}, dtype, test_device());
    matmul(empty({2, 0}, dtype, test_device()), empty({0, 1}, dtype, test_device()), {}, {c});
    EXPECT_EQ(to_values(c), (std::vector<double>{0, 0}));
  }
}

TEST(Matmul, BitsDoNotDependOnTheNumberOfThreads) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    std::vector<std::vector<double>> results;
    for (int threads : {1, 2, 3}) {
      Runtime runtime({.threads = threads});
      const Tensor a = randn({900, 130}, Seed{1}, dtype, runtime.device());
      const Tensor b = randn({101, 130}, Seed{2}, dtype, runtime.device());
      Tensor c = empty({900, 101}, acc_dtype(dtype), runtime.device());
      matmul(a, b, {.transpose_b = true}, {c});
      results.push_back(to_values(c));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(Matmul, CountsTwoFlopsAMultiplyAdd) {
  Runtime meta({.kind = DeviceKind::meta});
  Tensor c = empty({3, 5, 7}, DType::f32, meta.device());
  matmul_batched(empty({3, 5, 2}, DType::f32, meta.device()),
                 empty({3, 2, 7}, DType::f32, meta.device()), {}, {c});
  EXPECT_EQ(meta.cost().flops, 2 * 3 * 5 * 7 * 2);
  EXPECT_EQ(meta.cost().bytes, 4 * (30 + 42 + 105));
}

TEST(Matmul, MetaHoldsTheWorkspaceOfCuda) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  Tensor c = empty({2, 2}, DType::bf16, meta.device());
  const Tensor a = empty({2, 2}, DType::bf16, meta.device());
  matmul(a, a, {}, {c});
  matmul(a, a, {}, {c});
  EXPECT_EQ(meta.allocator().report().live[int(Purpose::workspace)], 32 << 20);
}

TEST(Matmul, RefusesInnerExtentsThatDiffer) {
  const std::string message = error_of([] {
    Tensor c = empty({2, 3}, DType::f64, test_device());
    matmul(randn({2, 4}, Seed{1}), randn({3, 5}, Seed{2}), {.transpose_b = true}, {c});
  });
  EXPECT_EQ(message, "matmul: a [2, 4] has 4 columns, but b [3, 5] transposed has 5 rows");
}

TEST(Matmul, RefusesMixedTypes) {
  const std::string message = error_of([] {
    Tensor c = empty({2, 2}, DType::bf16, test_device());
    matmul(randn({2, 2}, Seed{1}, DType::f32), randn({2, 2}, Seed{2}, DType::f32), {}, {c});
  });
  EXPECT_EQ(message,
            "matmul: a and b should have one dtype, and c the same or f32; they are f32, f32 and "
            "bf16");
}

PHX_CUDA_TEST(Matmul, CudaMatchesTheDefinitionAtOddSizes) {
  const Device device = cuda_test_runtime().device();
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (DType c_dtype : {dtype, DType::f32}) {
      const double tolerance = tolerance_of(c_dtype);
      for (int64_t k : {8, 37, 256}) {
        Case of{.dtype = dtype, .c_dtype = c_dtype, .m = 33, .n = 65, .k = k};
        expect_matches_definition(of, device, tolerance);
        of.beta = 1.f;
        of.alpha = 0.5f;
        expect_matches_definition(of, device, tolerance);
        of.batch = 3;
        expect_matches_definition(of, device, tolerance);
      }
      // The epilogues: on an H200 16.85 became 16.75 in bf16, more than one rounding is off. Two
      // roundings (of the product, then of the sum) would explain it; that cause is not proved, and
      // the bound below is set from it. GELU may be evaluated with the hardware's tanh, which errs
      // by 2^-11 of its value.
      Case of{.dtype = dtype, .c_dtype = c_dtype, .m = 33, .n = 72, .k = 64, .bias = true};
      expect_matches_definition(of, device, 2 * tolerance);
      of.activation = MatmulActivation::gelu;
      expect_matches_definition(of, device, 2 * tolerance + 0x1p-10);
    }
  }
}

PHX_CUDA_TEST(Matmul, CudaTakesRowsAtAnyOffset) {
  // Rows of 7 bf16 begin at 14, 28, .. bytes: the algorithm must not expect more than 2-byte
  // alignment.
  const Tensor whole = randn({40, 7}, Seed{1}, DType::bf16, cuda_test_runtime().device());
  const Tensor b = randn({9, 7}, Seed{2}, DType::bf16, cuda_test_runtime().device());
  Tensor all = empty({40, 9}, DType::f32, cuda_test_runtime().device());
  matmul(whole, b, {.transpose_b = true}, {all});
  Tensor some = empty({21, 9}, DType::f32, cuda_test_runtime().device());
  matmul(whole.rows(13, 21), b, {.transpose_b = true}, {some});
  expect_close(some, all.rows(13, 21), 4e-6);
}

}  // namespace
}  // namespace phx
