// How fast is the LM head with its loss, forward and backward, on this machine's CPU, beside a
// large f32 product? Prints for some chunk sizes: milliseconds (best of some), the rate over the
// three products' multiply-adds, and the share of the product's rate.
//   cpu_lm_loss [threads] [t] [h] [v]
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "phalanx/core/philox.h"
#include "phalanx/core/segment.h"
#include "phalanx/kernels/matmul.h"
#include "phalanx/ops/lm_loss.h"

using namespace phx;

namespace {

constexpr int kRounds = 5;

template <class F>
double best_seconds(F&& f) {
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

Tensor normals(const Shape& shape, uint64_t seed, float scale, Device device) {
  Tensor x = empty(shape, DType::f32, device);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] =
        scale *
        float(normal_from(philox4x32(philox_key(seed, 0, 0), uint32_t(i / 4), 0, 0, 0).x[i % 4]));
  return x;
}

double product_rate(Device device) {  // flops a second
  const int64_t n = 1536;
  const Tensor a = normals({n, n}, 1, 1, device), b = normals({n, n}, 2, 1, device);
  const Tensor c = empty({n, n}, DType::f32, device);
  const double seconds = best_seconds([&] { kernels::matmul(a, b, {}, {c, 0.f}); });
  return 2.0 * n * n * n / seconds;
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  Runtime runtime({.threads = int(argument(1, 2))});
  const int64_t t = argument(2, 2048), h = argument(3, 288), v = argument(4, 32000);
  const Device device = runtime.device();
  const Tensor x = normals({t, h}, 1, 1, device), w = normals({v, h}, 2, 0.02f, device);
  const Tensor labels = zeros({t}, DType::i64, device);
  for (int64_t i = 0; i < t; ++i) labels.data<int64_t>()[i] = i * 7919 % v;
  const std::vector<double> one{1};
  const Tensor scale = from_values(one, {1}, DType::f32, device);

  const double peak = product_rate(device);
  std::printf("%d threads, x [%ld, %ld], w [%ld, %ld], a large product %.1f GFLOP/s\n",
              device.threads().size(), long(t), long(h), long(v), long(h), peak / 1e9);
  for (const int64_t rows : {64, 128, 256}) {
    const LmLossOptions options{.chunk_bytes = rows * v * 4};
    const double seconds = best_seconds([&] {
      Segment segment(std::vector<Tensor>{x, w}, [&](std::span<const Tensor> in) {
        return std::vector<Tensor>{lm_loss(in[0], in[1], labels, {}, scale, options).loss_sum};
      });
      segment.backward(std::span(&scale, 1));
    });
    const double rate = 6.0 * double(t) * double(h) * double(v) / seconds;
    std::printf("chunks of at most %5ld rows: %8.1f ms  %6.1f GFLOP/s  %3.0f%%\n", long(rows),
                seconds * 1e3, rate / 1e9, 100 * rate / peak);
  }
}
