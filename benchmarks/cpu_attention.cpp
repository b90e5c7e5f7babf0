// How fast is the CPU attention? Prints forward and backward times, and GFLOP/s over visible pairs
// beside what the vector units of these threads could do (32 flops a cycle and core with AVX2).
//   cpu_attention [threads]
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "phalanx/core/autograd.h"
#include "phalanx/core/segment.h"
#include "phalanx/ops/attention.h"

using namespace phx;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Problem {
  int64_t s, b, n, g, d;
  DType dtype;
};

void measure(Runtime& runtime, const Problem& p) {
  Tensor qkv = zeros({p.s, p.b, (p.n + 2 * p.g) * p.d}, p.dtype, runtime.device());
  const Tensor d_o = zeros({p.s, p.b, p.n * p.d}, p.dtype, runtime.device());
  double forward = 1e9, backward = 1e9;  // the best of a few: the machine is shared
  for (int i = 0; i < 12; ++i) {
    const double t0 = seconds();
    Segment segment(std::span(&qkv, 1), [&](std::span<const Tensor> in) {
      return std::vector<Tensor>{attention(in[0], {p.n, p.g, p.d})};
    });
    const double t1 = seconds();
    segment.backward(std::span(&d_o, 1));
    const double t2 = seconds();
    forward = std::min(forward, t1 - t0);
    backward = std::min(backward, t2 - t1);
  }
  const double pairs = double(p.s) * double(p.s + 1) / 2 * double(p.b * p.n * p.d);
  std::printf(
      "s %5ld  b %2ld  n %2ld  g %2ld  d %3ld  %-4s  forward %8.3f ms %6.1f GFLOP/s"
      "  backward %8.3f ms %6.1f GFLOP/s\n",
      p.s, p.b, p.n, p.g, p.d, name(p.dtype), 1e3 * forward, 4e-9 * pairs / forward, 1e3 * backward,
      10e-9 * pairs / backward);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  Runtime runtime({.threads = threads});
  std::printf("%d threads; AVX2 peak at 3 GHz: %d GFLOP/s in f32\n", threads, 96 * threads);
  for (const Problem& p : {Problem{256, 8, 6, 6, 48, DType::f32},
                           {256, 8, 6, 6, 48, DType::bf16},
                           {256, 8, 6, 6, 48, DType::f64},
                           {1024, 1, 8, 2, 64, DType::f32},
                           {1024, 1, 8, 8, 128, DType::f32},
                           {512, 1, 1, 1, 256, DType::f32}})
    measure(runtime, p);
}
