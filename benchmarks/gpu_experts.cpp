// The experts' kernels on one GPU: grouped products beside dense ones of the same size, the kernels
// around them beside a copy, and a whole layer of experts. Random data, medians.
//
//   bench_gpu_experts [grouped] [rows] [layer] [walks]        default: the first three
//
// `walks` compares the ways in which the grouped products can go over their tiles.
//
// benchmarks/gpu_experts_peer.py measures the same shapes in PyTorch.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/core/op_trace.h"
#include "phalanx/core/segment.h"
#include "phalanx/kernels/cuda/grouped.h"
#include "phalanx/kernels/matmul.h"
#include "phalanx/kernels/random_fill.h"
#include "phalanx/ops/expert_rows.h"
#include "phalanx/ops/router.h"
#include "phalanx/report/op_table.h"

using namespace phx;
using namespace phx::kernels;

namespace {

class Bench {
 public:
  explicit Bench(Runtime& runtime) : runtime_(runtime) {}

  Tensor random(const Shape& shape, DType dtype = DType::bf16, double std = 1) {
    Tensor x = empty(shape, dtype, runtime_.device(), Purpose::runtime);
    fill_normal(x, whole_box(x), {.seed = ++seed_, .site = 0, .std = std});
    return x;
  }
  Tensor ints(const std::vector<int64_t>& values) {
    return from_ints(values, {int64_t(values.size())}, DType::i32, runtime_.device());
  }

  // Milliseconds a call, the median of several rounds.
  double time_of(const std::function<void()>& call) {
    for (int i = 0; i < 3; ++i) call();
    std::vector<double> rounds;
    constexpr int kRounds = 9, kCalls = 5;
    for (int round = 0; round < kRounds; ++round) {
      const TimeMark from = runtime_.backend().mark_time(StreamName::compute);
      for (int i = 0; i < kCalls; ++i) call();
      const TimeMark to = runtime_.backend().mark_time(StreamName::compute);
      runtime_.synchronize();
      rounds.push_back(runtime_.backend().milliseconds(from, to) / kCalls);
    }
    std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
    return rounds[kRounds / 2];
  }

  // TFLOP/s of a large dense product: what the shares below are of.
  double dense_peak() {
    if (peak_ > 0) return peak_;
    const int64_t n = 8192;
    const Tensor a = random({n, n}), b = random({n, n}), c = random({n, n});
    const double ms = time_of([&] { matmul(a, b, {.transpose_b = true}, {c}); });
    peak_ = 2.0 * double(n) * double(n) * double(n) / ms / 1e9;
    std::printf("dense 8192 x 8192 x 8192: %.1f TFLOP/s\n", peak_);
    return peak_;
  }

  void rate_line(const char* what, double flops, const std::function<void()>& call) {
    const double ms = time_of(call), rate = flops / ms / 1e9;
    std::printf("  %-34s %8.3f ms %7.1f TFLOP/s  %5.1f%% of dense\n", what, ms, rate,
                100 * rate / dense_peak());
    std::fflush(stdout);
  }
  void bytes_line(const char* what, double bytes, const std::function<void()>& call) {
    const double ms = time_of(call);
    std::printf("  %-34s %8.3f ms %7.2f TB/s\n", what, ms, bytes / ms / 1e9);
    std::fflush(stdout);
  }

  Runtime& runtime() { return runtime_; }

 private:
  Runtime& runtime_;
  uint64_t seed_ = 0;
  double peak_ = 0;
};

// Where each expert's rows begin: even, or as a random router would spread them.
std::vector<int64_t> offsets_of(int64_t rows, int64_t experts, bool even) {
  std::vector<double> share(static_cast<size_t>(experts), 1.0);
  std::mt19937 random(1);
  std::gamma_distribution<double> spread(4.0);
  double total = 0;
  for (double& s : share) total += s = even ? 1.0 : spread(random);
  std::vector<int64_t> at{0};
  double sum = 0;
  for (const double s : share) at.push_back(int64_t(double(rows) * (sum += s) / total + 0.5));
  at.back() = rows;
  return at;
}

void grouped(Bench& bench, int64_t rows, int64_t experts, int64_t n, int64_t k) {
  const Tensor x = bench.random({rows, k}), dy = bench.random({rows, n});
  const Tensor w = bench.random({experts, n, k}, DType::bf16, 0.02);
  const Tensor y = bench.random({rows, n}), dx = bench.random({rows, k});
  const Tensor dw = bench.random({experts, n, k}, DType::f32), dw16 = bench.random({experts, n, k});
  const double flops = 2.0 * double(rows) * double(n) * double(k);
  for (const bool even : {true, false}) {
    const Tensor offsets = bench.ints(offsets_of(rows, experts, even));
    std::printf("%lld experts, [%lld, %lld] each, %lld rows, %s\n", static_cast<long long>(experts),
                static_cast<long long>(n), static_cast<long long>(k), static_cast<long long>(rows),
                even ? "even" : "uneven");
    bench.rate_line("forward", flops, [&] { grouped_matmul(x, w, offsets, false, {y}); });
    bench.rate_line("dgrad", flops, [&] { grouped_matmul(dy, w, offsets, true, {dx}); });
    bench.rate_line("wgrad bf16", flops, [&] { grouped_weight_product(dy, x, offsets, {dw16}); });
    bench.rate_line("wgrad f32", flops, [&] { grouped_weight_product(dy, x, offsets, {dw}); });
    bench.rate_line("wgrad f32, added", flops, [&] {
      grouped_weight_product(dy, x, offsets, {dw, 1.f});
    });
  }
  std::printf("  the same as one dense product\n");
  const Tensor one = w.rows(0, 1).reshape({n, k}), done = dw.rows(0, 1).reshape({n, k});
  bench.rate_line("forward", flops, [&] { matmul(x, one, {.transpose_b = true}, {y}); });
  bench.rate_line("wgrad f32", flops, [&] { matmul(dy, x, {.transpose_a = true}, {done}); });
}

void walks(Bench& bench, int64_t rows, int64_t experts, int64_t n, int64_t k) {
  const Tensor x = bench.random({rows, k}), dy = bench.random({rows, n});
  const Tensor w = bench.random({experts, n, k}, DType::bf16, 0.02);
  const Tensor y = bench.random({rows, n}), dx = bench.random({rows, k});
  const Tensor dw = bench.random({experts, n, k}, DType::f32);
  const Tensor offsets = bench.ints(offsets_of(rows, experts, /*even=*/true));
  const double flops = 2.0 * double(rows) * double(n) * double(k);
  const auto rate = [&](const std::function<bool()>& call) {
    PHX_CHECK(call(), "this GPU has no Hopper kernels");
    return flops / bench.time_of([&] { call(); }) / 1e9;
  };
  std::printf("%lld experts, [%lld, %lld] each, %lld rows: TFLOP/s\n",
              static_cast<long long>(experts), static_cast<long long>(n), static_cast<long long>(k),
              static_cast<long long>(rows));
  for (const int cluster : {1, 2})
    for (const int lead : {0, 1, 2, 3})
      for (const int block_m : {8, 16, 32}) {
        if (block_m != 16 && lead != 2) continue;
        const cuda::HopperTuning tuning{.cluster = cluster, .lead = lead, .block_m = block_m};
        const double forward =
            rate([&] { return cuda::hopper_grouped_matmul(x, w, offsets, false, {y}, tuning); });
        const double dgrad =
            rate([&] { return cuda::hopper_grouped_matmul(dy, w, offsets, true, {dx}, tuning); });
        const double wgrad =
            rate([&] { return cuda::hopper_grouped_weight_product(dy, x, offsets, {dw}, tuning); });
        const double added = rate([&] {
          return cuda::hopper_grouped_weight_product(dy, x, offsets, {dw, 1.f}, tuning);
        });
        std::printf(
            "  cluster %d lead %d block %2d: forward %.1f dgrad %.1f wgrad %.1f added %.1f\n",
            cluster, lead, block_m, forward, dgrad, wgrad, added);
        std::fflush(stdout);
      }
}

// Tokens, experts, experts a token, hidden size and an expert's width.
struct Layer {
  int64_t t, e, k, h, f;
};

Tensor choices_of(Bench& bench, const Layer& of, Tensor* probs = nullptr) {
  const Tensor logits = bench.random({of.t, of.e}, DType::f32);
  const Routing routing = phx::route(logits, {}, {.topk = of.k}, {}, {});
  if (probs != nullptr) *probs = routing.probs.detach();
  return routing.indices;
}

void rows(Bench& bench, const Layer& of) {
  std::printf("kernels of %lld tokens, %lld of %lld experts, hidden %lld, width %lld\n",
              static_cast<long long>(of.t), static_cast<long long>(of.k),
              static_cast<long long>(of.e), static_cast<long long>(of.h),
              static_cast<long long>(of.f));
  const int64_t r = of.t * of.k;
  const Device device = bench.runtime().device();
  const Tensor from = bench.random({int64_t{1} << 29}), to = bench.random({int64_t{1} << 29});
  bench.bytes_line("copy of 1 GiB", 2.0 * double(from.bytes()), [&] {
    bench.runtime().backend().copy_within(to.raw(), from.raw(), from.bytes(), StreamName::compute);
  });
  const Tensor logits = bench.random({of.t, of.e}, DType::f32);
  Tensor indices = empty({of.t, of.k}, DType::i32, device);
  Tensor probs = empty({of.t, of.k}, DType::f32, device);
  const double logit_bytes = double(logits.bytes()), choice_bytes = double(indices.bytes());
  const RouterOptions options{.topk = of.k};
  bench.bytes_line("route", logit_bytes + 2 * choice_bytes,
                   [&] { kernels::route(logits, {}, options, indices, probs); });
  Tensor sums = empty({balance_size(1, of.e)}, DType::f32, device);
  bench.bytes_line("route_balance", logit_bytes,
                   [&] { kernels::route_balance(logits, options, 1, sums); });
  const Tensor dlogits = bench.random({of.t, of.e}, DType::f32);
  bench.bytes_line("route_backward", 2 * logit_bytes + 2 * choice_bytes, [&] {
    kernels::route_backward(logits, indices, probs, {}, options, {dlogits});
  });
  Tensor keep = empty({of.t, of.k}, DType::u8, device);
  bench.bytes_line("keep_within_capacity", 2 * choice_bytes, [&] {
    kernels::keep_within_capacity(indices, probs, of.e, r / of.e, /*by_weight=*/true, keep);
  });
  Tensor row_of = empty({of.t, of.k}, DType::i32, device),
         choice_of = empty({r}, DType::i32, device);
  Tensor offsets = empty({of.e + 1}, DType::i32, device);
  bench.bytes_line("sort_by_expert", 3 * choice_bytes,
                   [&] { kernels::sort_by_expert(indices, 0, row_of, choice_of, offsets); });
  const Tensor x = bench.random({of.t, of.h});
  Tensor wide = bench.random({r, of.h});
  bench.bytes_line("gather_rows", double(x.bytes() + wide.bytes()),
                   [&] { kernels::gather_rows(x, choice_of, of.k, wide); });
  bench.bytes_line("sum_rows", double(x.bytes() + wide.bytes()),
                   [&] { kernels::sum_rows(wide, row_of, {x}); });
  const Tensor packed = bench.random({r, 2 * of.f}), dy = bench.random({r, of.f});
  const Tensor weights = bench.random({r}, DType::f32);
  Tensor y = bench.random({r, of.f}), dx = bench.random({r, 2 * of.f});
  Tensor dweights = empty({r}, DType::f32, device);
  bench.bytes_line("activate_weighted", 3.0 * double(y.bytes()),
                   [&] { kernels::activate_weighted(packed, weights, offsets, {}, y); });
  bench.bytes_line("activate_weighted_backward", 5.0 * double(y.bytes()), [&] {
    kernels::activate_weighted_backward(packed, weights, offsets, dy, {}, dx, dweights);
  });
}

// Everything behind the router's choice: permute, two grouped products around the gated activation,
// and the sum; gradients of rows, weights and router weights.
void layer(Bench& bench, const Layer& of) {
  Tensor probs;
  const Tensor indices = choices_of(bench, of, &probs);
  const std::vector<Tensor> in{bench.random({of.t, of.h}), probs,
                               bench.random({of.e * 2 * of.f, of.h}, DType::bf16, 0.02),
                               bench.random({of.e * of.h, of.f}, DType::bf16, 0.02)};
  const Segment::Forward forward = [&](std::span<const Tensor> x) {
    const ExpertOrder order = order_by_expert(indices, 0, of.e, of.t * of.k);
    const Tensor hidden = grouped_linear(to_expert_rows(x[0], order), x[2], order.offsets);
    const Tensor active =
        weighted_activation(hidden, to_expert_weights(x[1], order), order.offsets, {});
    return std::vector<Tensor>{
        from_expert_rows(grouped_linear(active, x[3], order.offsets), order)};
  };
  const Tensor dy = bench.random({of.t, of.h});
  const double flops = 6.0 * double(of.t * of.k) * double(of.h) * double(of.f);
  std::printf("layer of %lld tokens, %lld of %lld experts, hidden %lld, width %lld\n",
              static_cast<long long>(of.t), static_cast<long long>(of.k),
              static_cast<long long>(of.e), static_cast<long long>(of.h),
              static_cast<long long>(of.f));
  const double ahead = bench.time_of([&] { Segment segment(in, forward); });
  const double both = bench.time_of([&] {
    Segment segment(in, forward);
    segment.backward(std::span(&dy, 1));
  });
  const double back = both - ahead;
  std::printf("  forward %.3f ms %.1f TFLOP/s, backward %.3f ms %.1f TFLOP/s\n", ahead,
              flops / ahead / 1e9, back, 2 * flops / back / 1e9);
  OpTrace trace(bench.runtime());
  Segment segment(in, forward);
  std::printf("%s\n", op_table(trace.collect(), 1, ahead, /*lines=*/20).c_str());
  segment.backward(std::span(&dy, 1));
  std::printf("%s\n", op_table(trace.collect(), 1, back, /*lines=*/20).c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  std::set<std::string> parts(argv + 1, argv + argc);
  if (parts.empty()) parts = {"grouped", "rows", "layer"};
  Runtime runtime({.kind = DeviceKind::cuda});
  Bench bench(runtime);
  const Layer layers[] = {{.t = 16384, .e = 64, .k = 8, .h = 2048, .f = 1024},
                          {.t = 16384, .e = 128, .k = 8, .h = 2048, .f = 768}};
  if (parts.contains("grouped")) {
    bench.dense_peak();
    grouped(bench, 131072, 64, 2048, 2048);
    grouped(bench, 131072, 128, 1536, 2048);
    grouped(bench, 131072, 128, 2048, 768);
  }
  if (parts.contains("walks")) {
    walks(bench, 131072, 64, 2048, 2048);
    walks(bench, 131072, 128, 1536, 2048);
  }
  if (parts.contains("rows")) rows(bench, layers[0]);
  if (parts.contains("layer"))
    for (const Layer& of : layers) layer(bench, of);
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
