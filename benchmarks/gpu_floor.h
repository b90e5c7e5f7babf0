// How fast a step could be: the time of its products and of its attention, each measured in a loop
// of five seconds at the step's own shapes on random data, plus the bytes of all other kernels at
// the rate of a copy. What runs beside or is fused could be faster; what waits is slower.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "phalanx/core/op_trace.h"
#include "phalanx/kernels/attention.h"
#include "phalanx/kernels/expert_rows.h"
#include "phalanx/kernels/matmul.h"
#include "phalanx/kernels/random_fill.h"

namespace phx {

struct StepFloor {
  double gemm_ms = 0, attention_ms = 0, memory_ms = 0;
  double gemm_tflops = 0, copy_tb = 0;  // rates that were seen
  double ms() const { return gemm_ms + attention_ms + memory_ms; }
};

struct FloorShape {
  int64_t layers, hidden, heads, groups, head_dim, ffn, vocab, seq, micro_batch;
  int64_t experts = 0, topk = 0;  // ffn is then the width of one expert
};

class FloorMeter {
 public:
  FloorMeter(Runtime& runtime, const FloorShape& of) : runtime_(runtime), of_(of) {}

  // `records`: one or more traced steps.
  StepFloor measure(const std::vector<OpRecord>& records, int steps) {
    StepFloor floor;
    floor.copy_tb = copy_rate();
    double flops = 0;
    for (const OpRecord& op : records) {
      if (op.kind == OpKind::phase) continue;
      if (op.name == "matmul" || op.name.starts_with("grouped_"))
        flops += double(op.cost.flops) / steps;
      else if (!op.name.starts_with("attention"))
        floor.memory_ms += double(op.cost.bytes) / steps / (floor.copy_tb * 1e9);
    }
    floor.gemm_ms = gemms();
    floor.gemm_tflops = flops / floor.gemm_ms / 1e9;
    floor.attention_ms = attention();
    return floor;
  }

 private:
  static constexpr double kSeconds = 5;

  Tensor random(const Shape& shape, DType dtype) {
    Tensor x = empty(shape, dtype, runtime_.device(), Purpose::runtime);
    kernels::fill_normal(x, kernels::whole_box(x), {.seed = ++seed_, .site = 0, .std = 0.1});
    return x;
  }

  // Milliseconds of one call, over five seconds.
  template <class F>
  double sustained_ms(F&& f) {
    using Clock = std::chrono::steady_clock;
    f();
    runtime_.synchronize();
    const auto start = Clock::now();
    int64_t calls = 0;
    double seconds = 0;
    do {
      f();
      runtime_.synchronize();
      ++calls;
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    } while (seconds < kSeconds);
    return seconds * 1e3 / double(calls);
  }

  double copy_rate() {
    constexpr int64_t kBytes = int64_t{4} << 30;
    const Tensor from = random({kBytes / 2}, DType::bf16), to = random({kBytes / 2}, DType::bf16);
    const double ms = sustained_ms(
        [&] { runtime_.backend().copy_within(to.raw(), from.raw(), kBytes, StreamName::compute); });
    return 2.0 * double(kBytes) / ms / 1e9;
  }

  // y [t, out] = x [t, in] w^T, and both of its gradients. What is computed goes elsewhere than
  // what is read: fed back, numbers grow to infinities, which cost the card less power.
  struct Product {
    Tensor x, w, dy, y, dx, dw;
    int64_t times;
  };

  // The grouped products of a layer whose rows are spread evenly over the experts.
  struct Experts {
    Tensor offsets;                     // [e + 1]
    Tensor x, hidden, active, y;        // [r, h], [r, 2f], [r, f], [r, h]
    Tensor fc1, fc2, d_fc1, d_fc2;      // [e, 2f, h], [e, h, f]
    Tensor dy, d_active, d_hidden, dx;  // as y, active, hidden, x

    void multiply() const {
      kernels::grouped_matmul(x, fc1, offsets, false, {hidden});
      kernels::grouped_matmul(active, fc2, offsets, false, {y});
      kernels::grouped_matmul(dy, fc2, offsets, true, {d_active});
      kernels::grouped_weight_product(dy, active, offsets, {d_fc2});
      kernels::grouped_matmul(d_hidden, fc1, offsets, true, {dx});
      kernels::grouped_weight_product(d_hidden, x, offsets, {d_fc1});
    }
  };

  Experts make_experts() {
    const int64_t e = of_.experts, r = of_.seq * of_.micro_batch * of_.topk, h = of_.hidden,
                  f = of_.ffn;
    std::vector<int64_t> offsets;
    for (int64_t i = 0; i <= e; ++i) offsets.push_back(r * i / e);
    const DType bf16 = DType::bf16, f32 = DType::f32;
    return {.offsets = from_ints(offsets, {e + 1}, DType::i32, runtime_.device()),
            .x = random({r, h}, bf16),
            .hidden = random({r, 2 * f}, bf16),
            .active = random({r, f}, bf16),
            .y = random({r, h}, bf16),
            .fc1 = random({e, 2 * f, h}, bf16),
            .fc2 = random({e, h, f}, bf16),
            .d_fc1 = random({e, 2 * f, h}, f32),
            .d_fc2 = random({e, h, f}, f32),
            .dy = random({r, h}, bf16),
            .d_active = random({r, f}, bf16),
            .d_hidden = random({r, 2 * f}, bf16),
            .dx = random({r, h}, bf16)};
  }

  // All products of a step, one after the other, until the time is over.
  double gemms() {
    const int64_t t = of_.seq * of_.micro_batch, q = of_.heads * of_.head_dim;
    const auto product = [&](int64_t rows, int64_t in, int64_t out, int64_t times) {
      const DType bf16 = DType::bf16;
      return Product{random({rows, in}, bf16),
                     random({out, in}, bf16),
                     random({rows, out}, bf16),
                     random({rows, out}, bf16),
                     random({rows, in}, bf16),
                     random({out, in}, DType::f32),
                     times};
    };
    // The head comes in chunks, as in ops/lm_loss.cpp.
    const int64_t chunk = std::min(t, (int64_t{1} << 30) / (of_.vocab * 2) / 64 * 64);
    const std::vector<Product> products = {
        product(t, of_.hidden, q + 2 * of_.groups * of_.head_dim, of_.layers),
        product(t, q, of_.hidden, of_.layers),
        product(t, of_.hidden, 2 * of_.ffn, of_.experts > 0 ? 0 : of_.layers),
        product(t, of_.ffn, of_.hidden, of_.experts > 0 ? 0 : of_.layers),
        product(chunk, of_.hidden, of_.vocab, t / chunk),
        product(std::max<int64_t>(t % chunk, 64), of_.hidden, of_.vocab, t % chunk > 0 ? 1 : 0)};
    const Experts experts = of_.experts > 0 ? make_experts() : Experts{};
    return sustained_ms([&] {
      for (int64_t i = 0; i < (of_.experts > 0 ? of_.layers : 0); ++i) experts.multiply();
      for (const Product& p : products) {
        for (int64_t i = 0; i < p.times; ++i) {
          kernels::matmul(p.x, p.w, {.transpose_b = true}, {p.y});
          kernels::matmul(p.dy, p.w, {}, {p.dx});
          // The head's gradient is added to from its second chunk on.
          kernels::matmul(p.dy, p.x, {.transpose_a = true, .alpha = 1e-3f},
                          {p.dw, &p == &products[4] ? 1.f : 0.f});
        }
      }
    });
  }

  double attention() {
    const int64_t n = of_.heads, g = of_.groups, d = of_.head_dim, s = of_.seq, b = of_.micro_batch;
    const Tensor qkv = random({s, b, (n + 2 * g) * d}, DType::bf16), dqkv = empty_like(qkv);
    const Tensor o = random({s, b, n * d}, DType::bf16), d_o = random({s, b, n * d}, DType::bf16);
    Tensor lse = empty({b, n, s}, DType::f32, runtime_.device());
    const auto heads = [d](const Tensor& x, int64_t first, int64_t count) {
      return heads_of(x, d, first, count);
    };
    const kernels::AttentionInputs in{heads(qkv, 0, n), heads(qkv, n, g), heads(qkv, n + g, g)};
    const kernels::AttentionGradients grads{heads(dqkv, 0, n), heads(dqkv, n, g),
                                            heads(dqkv, n + g, g)};
    return sustained_ms([&] {
      for (int64_t i = 0; i < of_.layers; ++i) {
        kernels::attention(in, {}, heads(o, 0, n), lse);
        kernels::attention_backward(in, {}, heads(o, 0, n), lse, heads(d_o, 0, n), grads);
      }
    });
  }

  Runtime& runtime_;
  FloorShape of_;
  uint64_t seed_ = 0;
};

}  // namespace phx
