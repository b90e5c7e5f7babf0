// How fast are the matrix products of a small model on this CPU, next to the best that OpenBLAS
// reaches on a large square one?
//
//   cpu_gemm [threads]     default: 2
//
// Columns, in GFLOP/s: our matmul with one and with `threads` threads, OpenBLAS with its own
// threads, and ours in % of the peak, a 2048^3 sgemm on as many threads. The best of several runs
// counts: a slower one was disturbed.
#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "phalanx/kernels/elementwise.h"
#include "phalanx/kernels/matmul.h"

namespace phx {
namespace {

struct Product {
  const char* what;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

constexpr Product kProducts[] = {
    {"fc1 forward", 2048, 768, 288, false, true},
    {"fc1 input gradient", 2048, 288, 768, false, false},
    {"fc1 weight gradient", 768, 288, 2048, true, false},
    {"fc2 forward", 2048, 288, 768, false, true},
    {"head forward", 2048, 32000, 288, false, true},
    {"head input gradient", 2048, 288, 32000, false, false},
    {"head weight gradient", 32000, 288, 2048, true, false},
};

// GFLOP/s of the fastest of the runs that fit into half a second, five at least.
template <class F>
double rate(double flops, F&& f) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  f();
  double best = 1e30;
  const auto begin = Clock::now();
  for (int run = 0; run < 5 || seconds(Clock::now() - begin) < 0.5; ++run) {
    const auto at = Clock::now();
    f();
    best = std::min(best, seconds(Clock::now() - at));
  }
  return flops / best * 1e-9;
}

// All elements alike: the speed of a product does not depend on them unless they are subnormal.
Tensor filled(const Shape& shape, DType dtype, Device device) {
  Tensor x = empty(shape, dtype, device);
  kernels::fill(x, 0.5);
  return x;
}

double matmul_rate(const Product& of, DType dtype, Device device) {
  const Tensor a = filled(of.transpose_a ? Shape{of.k, of.m} : Shape{of.m, of.k}, dtype, device);
  const Tensor b = filled(of.transpose_b ? Shape{of.n, of.k} : Shape{of.k, of.n}, dtype, device);
  const Tensor c = filled({of.m, of.n}, dtype, device);
  return rate(2.0 * double(of.m) * double(of.n) * double(of.k), [&] {
    kernels::matmul(a, b, {.transpose_a = of.transpose_a, .transpose_b = of.transpose_b}, {c});
  });
}

double openblas_rate(const Product& of, int threads, Device device) {
  const Tensor a = filled({of.m, of.k}, DType::f32, device);
  const Tensor b = filled({of.k, of.n}, DType::f32, device);
  const Tensor c = filled({of.m, of.n}, DType::f32, device);
  const auto m = int(of.m), n = int(of.n), k = int(of.k);
  openblas_set_num_threads(threads);
  const double result = rate(2.0 * m * n * k, [&] {
    cblas_sgemm(CblasRowMajor, of.transpose_a ? CblasTrans : CblasNoTrans,
                of.transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1.f, a.data<float>(),
                of.transpose_a ? m : k, b.data<float>(), of.transpose_b ? k : n, 0.f,
                c.data<float>(), n);
  });
  openblas_set_num_threads(1);
  return result;
}

void run(int threads) {
  Runtime one({.threads = 1}), many({.threads = threads});
  // Ours sets OpenBLAS to one thread at its first call; after that the setting is openblas_rate's.
  matmul_rate({"", 64, 64, 64, false, false}, DType::f32, one.device());
  const double peak = openblas_rate({"", 2048, 2048, 2048, false, false}, threads, many.device());
  std::printf("peak: %.0f GFLOP/s (OpenBLAS, 2048^3 sgemm, %d threads)\n\n", peak, threads);
  std::printf("%-21s %6s %6s %6s | %8s %8s %9s %7s | %8s %8s\n", "", "m", "n", "k", "f32 x1", "f32",
              "OpenBLAS", "of peak", "bf16", "f64");
  for (const Product& product : kProducts) {
    const double single = matmul_rate(product, DType::f32, one.device());
    const double ours = matmul_rate(product, DType::f32, many.device());
    const double theirs = openblas_rate(product, threads, many.device());
    std::printf("%-21s %6lld %6lld %6lld | %8.0f %8.0f %9.0f %6.0f%% | %8.0f %8.0f\n", product.what,
                (long long)product.m, (long long)product.n, (long long)product.k, single, ours,
                theirs, 100 * ours / peak, matmul_rate(product, DType::bf16, many.device()),
                matmul_rate(product, DType::f64, many.device()));
  }
}

}  // namespace
}  // namespace phx

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (threads < 1) {
    std::fprintf(stderr, "usage: %s [threads]\n", argv[0]);
    return 2;
  }
  phx::run(threads);
  return 0;
}
