#include "phalanx/kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "phalanx/base/error.h"
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

// What a product with an addend (a bias, or old contents) may become on its way into 16 bits. The
// sums below are exact in f32 in any order, so each way has its own bits and the result tells which
// was taken.
double quantum(double v, int bits) {
  int exponent = 0;
  std::frexp(v, &exponent);
  return std::ldexp(1.0, exponent - bits);
}
double nearest(double v, int bits) {  // ties to even
  const double q = quantum(v, bits);
  return std::nearbyint(v / q) * q;
}
double toward_zero(double v, int bits) {
  const double q = quantum(v, bits);
  return std::trunc(v / q) * q;
}

struct Way {
  const char* name;
  bool documented;  // docs/numerics.md
  // head + tail is the product: its terms lie at both ends of k, where a cut of k parts them.
  double (*of)(double head, double tail, double addend, int bits);
};

constexpr Way kWays[] = {
    {"rounded once", true,
     [](double head, double tail, double addend, int bits) {
       return nearest(head + tail + addend, bits);
     }},
    {"rounded before and after the addition", true,
     [](double head, double tail, double addend, int bits) {
       return nearest(nearest(head + tail, bits) + addend, bits);
     }},
    {"cut off", false,
     [](double head, double tail, double addend, int bits) {
       return toward_zero(head + tail + addend, bits);
     }},
    {"rounded before the addition and cut off after it", false,
     [](double head, double tail, double addend, int bits) {
       return toward_zero(nearest(head + tail, bits) + addend, bits);
     }},
    {"parts of k rounded by themselves", false,
     [](double head, double tail, double addend, int bits) {
       return nearest(nearest(head, bits) + tail + addend, bits);
     }},
    {"parts of k rounded by themselves, then their sum", false,
     [](double head, double tail, double addend, int bits) {
       return nearest(nearest(nearest(head, bits) + tail, bits) + addend, bits);
     }},
};

enum class Addend { none, bias, bias_then_gelu, old_contents };
const char* name_of(Addend addend) {
  switch (addend) {
    case Addend::none:
      return "plain";
    case Addend::bias:
      return "bias";
    case Addend::bias_then_gelu:
      return "bias and GELU";
    case Addend::old_contents:
      return "old contents";
  }
  return "";
}

struct RoundingCase {
  DType dtype = DType::bf16;
  int64_t m = 33, n = 72, k = 64;
  bool transpose_a = false, transpose_b = true;
  Addend addend = Addend::bias;
};

// The first of kWays that gives every element of the product; null if none does. Row i of a has
// three terms, large, small and smaller, which b takes as they are; all values lie above 14, where
// GELU is the identity to the last bit.
const Way* way_of(const RoundingCase& of, Device device, std::string& counts) {
  const int bits = of.dtype == DType::bf16 ? 8 : 11;
  const auto units = [&](int64_t count, Seed seed) {
    return to_values(rand_ints({count}, 128, seed));
  };
  const auto large = units(of.m, {1}), small = units(of.m, {2}), smaller = units(of.m, {3}),
             shift = units(of.n, {4});
  std::vector<double> a(of.m * of.k), b(of.k * of.n), addend(of.n), old(of.m * of.n);
  const auto at_a = [&](int64_t i, int64_t l) -> double& {
    return a[of.transpose_a ? l * of.m + i : i * of.k + l];
  };
  for (int64_t i = 0; i < of.m; ++i) {
    at_a(i, 0) = 16 + large[i] / 8;                      // 16 .. 32 in steps of 2^-3, bf16's there
    at_a(i, 1) = small[i] * 0x1p-8;                      // below 1/2
    at_a(i, of.k - 1) = (2 * smaller[i] + 1) * 0x1p-11;  // below 1/8, never zero
  }
  for (int64_t j = 0; j < of.n; ++j) {
    for (int64_t l : {int64_t{0}, int64_t{1}, of.k - 1})
      b[of.transpose_b ? j * of.k + l : l * of.n + j] = 1;
    if (of.addend != Addend::none) addend[j] = (2 * shift[j] - 127) * 0x1p-7;  // -1 .. 1
    for (int64_t i = 0; i < of.m; ++i) old[i * of.n + j] = addend[j];
  }
  const bool has_bias = of.addend == Addend::bias || of.addend == Addend::bias_then_gelu;
  const Tensor x =
      from_values(a, of.transpose_a ? Shape{of.k, of.m} : Shape{of.m, of.k}, of.dtype, device);
  const Tensor y =
      from_values(b, of.transpose_b ? Shape{of.n, of.k} : Shape{of.k, of.n}, of.dtype, device);
  Tensor c = from_values(old, {of.m, of.n}, of.dtype, device);
  matmul(x, y,
         {.transpose_a = of.transpose_a,
          .transpose_b = of.transpose_b,
          .bias = has_bias ? from_values(addend, {of.n}, of.dtype, device) : Tensor(),
          .activation = of.addend == Addend::bias_then_gelu ? MatmulActivation::gelu
                                                            : MatmulActivation::none},
         {c, of.addend == Addend::old_contents ? 1.f : 0.f});
  const auto result = to_values(c);
  const Way* found = nullptr;
  for (const Way& way : kWays) {
    int64_t equal = 0;
    for (int64_t i = 0; i < of.m; ++i)
      for (int64_t j = 0; j < of.n; ++j)
        equal += result[i * of.n + j] ==
                 way.of(at_a(i, 0) + at_a(i, 1), at_a(i, of.k - 1), addend[j], bits);
    counts += str_cat("\n  ", equal, " of ", result.size(), ": ", way.name);
    if (equal == int64_t(result.size()) && found == nullptr) found = &way;
  }
  return found;
}

TEST(Matmul, TheWaysOfRoundingDiffer) {
  for (int bits : {8, 11}) {
    for (const Way& a : kWays) {
      for (const Way& b : kWays) {
        if (&a == &b) continue;
        int differ = 0;
        for (int i = 0; i < 128; ++i)
          for (int j = 0; j < 128; ++j) {
            const double head = 16 + i / 8.0 + (37 * i % 128) * 0x1p-8,
                         tail = (2 * (53 * i % 128) + 1) * 0x1p-11, addend = (2 * j - 127) * 0x1p-7;
            differ += a.of(head, tail, addend, bits) != b.of(head, tail, addend, bits);
          }
        // That is a dozen elements of a matrix of 33 x 72.
        EXPECT_GT(differ, 128 * 128 / 200) << a.name << " and " << b.name << ", " << bits;
      }
    }
  }
  EXPECT_EQ(nearest(16.85, 8), 16.875);
  EXPECT_EQ(toward_zero(16.85, 8), 16.75);
}

TEST(Matmul, TheCpuRoundsOnceWhateverIsAdded) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    for (Addend addend :
         {Addend::none, Addend::bias, Addend::bias_then_gelu, Addend::old_contents}) {
      std::string counts;
      EXPECT_EQ(way_of({.dtype = dtype, .addend = addend}, test_device(), counts), &kWays[0])
          << dtype << ", " << name_of(addend) << counts;
    }
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
      // With a bias: rounded once, or before and after the bias is added (see the next test). The
      // second way errs by a rounding of the product and one of the sum, and the product may be
      // larger than the sum by the bias: 4 at most here, beside results up to 16 or more. On an
      // H200 16.85 became 16.75 in bf16. GELU may be evaluated with the hardware's tanh, which errs
      // by 2^-11 of its value.
      const double twice = 2.25 * tolerance;
      Case of{.dtype = dtype, .c_dtype = c_dtype, .m = 33, .n = 72, .k = 64, .bias = true};
      expect_matches_definition(of, device, twice);
      of.activation = MatmulActivation::gelu;
      expect_matches_definition(of, device, twice + 0x1p-10);
    }
  }
}

// Prints the way that each kind of product takes on this machine.
PHX_CUDA_TEST(Matmul, CudaRoundsOnceOrBeforeAndAfterTheAddition) {
  const Device device = cuda_test_runtime().device();
  const int64_t shapes[][3] = {{33, 72, 64},   {1, 72, 64},      {128, 256, 64},
                               {256, 512, 40}, {64, 1024, 4096}, {512, 1024, 512}};
  for (DType dtype : {DType::bf16, DType::f16}) {
    for (Addend addend :
         {Addend::none, Addend::bias, Addend::bias_then_gelu, Addend::old_contents}) {
      for (const auto& [m, n, k] : shapes) {
        for (int transposed = 0; transposed < 4; ++transposed) {
          const RoundingCase of{.dtype = dtype,
                                .m = m,
                                .n = n,
                                .k = k,
                                .transpose_a = transposed / 2 != 0,
                                .transpose_b = transposed % 2 != 0,
                                .addend = addend};
          std::string counts;
          const Way* way = way_of(of, device, counts);
          const std::string which =
              str_cat(name(dtype), ", ", name_of(addend), ", ", m, " x ", n, " x ", k,
                      ", transposed ", of.transpose_a, of.transpose_b);
          std::cout << which << ": " << (way ? way->name : "none of the known ways") << "\n";
          EXPECT_TRUE(way != nullptr && way->documented) << which << counts;
          EXPECT_TRUE(way == &kWays[0] || addend != Addend::none) << which << counts;
        }
      }
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
