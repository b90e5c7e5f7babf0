#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/kernels/attention.h"
#include "support/gradients.h"

namespace phx::kernels {
namespace {

using namespace phx::testing;

struct Sizes {
  int64_t sq, sk, b, n, g, d, dv;
};

struct Gradients3 {
  std::vector<double> dq, dk, dv;
};

// The definition, one pair of query and key at a time; all tensors are [s, b, heads, d].
Gradients3 plain(const Sizes& z, const AttentionOptions& options, const std::vector<double>& q,
                 const std::vector<double>& k, const std::vector<double>& v,
                 const std::vector<double>& d_o) {
  Gradients3 grads{std::vector<double>(q.size()), std::vector<double>(k.size()),
                   std::vector<double>(v.size())};
  const double scale = 1 / std::sqrt(double(z.d));
  for (int64_t b = 0; b < z.b; ++b) {
    for (int64_t n = 0; n < z.n; ++n) {
      const int64_t g = n / (z.n / z.g);
      for (int64_t i = 0; i < z.sq; ++i) {
        const int64_t position = i + z.sk - z.sq;
        const int64_t first =
            options.window_left < 0 ? 0 : std::max<int64_t>(0, position - options.window_left);
        const int64_t end = options.causal ? position + 1 : z.sk;
        const size_t at_q = size_t(((i * z.b + b) * z.n + n) * z.d);
        const size_t at_o = size_t(((i * z.b + b) * z.n + n) * z.dv);
        const auto at_k = [&](int64_t j) { return size_t(((j * z.b + b) * z.g + g) * z.d); };
        const auto at_v = [&](int64_t j) { return size_t(((j * z.b + b) * z.g + g) * z.dv); };
        std::vector<double> s(size_t(z.sk)), p(size_t(z.sk)), dp(size_t(z.sk));
        double sum = 0, delta = 0;
        for (int64_t j = first; j < end; ++j) {
          for (int64_t c = 0; c < z.d; ++c)
            s[size_t(j)] += scale * q[at_q + size_t(c)] * k[at_k(j) + size_t(c)];
          if (options.softcap > 0)
            s[size_t(j)] = options.softcap * std::tanh(s[size_t(j)] / options.softcap);
          sum += std::exp(s[size_t(j)]);
          for (int64_t c = 0; c < z.dv; ++c)
            dp[size_t(j)] += d_o[at_o + size_t(c)] * v[at_v(j) + size_t(c)];
        }
        for (int64_t j = first; j < end; ++j) {
          p[size_t(j)] = std::exp(s[size_t(j)]) / sum;
          delta += p[size_t(j)] * dp[size_t(j)];
        }
        for (int64_t j = first; j < end; ++j) {
          const double bent = options.softcap > 0 ? s[size_t(j)] / options.softcap : 0;
          const double ds = scale * p[size_t(j)] * (dp[size_t(j)] - delta) * (1 - bent * bent);
          for (int64_t c = 0; c < z.d; ++c) {
            grads.dq[at_q + size_t(c)] += ds * k[at_k(j) + size_t(c)];
            grads.dk[at_k(j) + size_t(c)] += ds * q[at_q + size_t(c)];
          }
          for (int64_t c = 0; c < z.dv; ++c)
            grads.dv[at_v(j) + size_t(c)] += p[size_t(j)] * d_o[at_o + size_t(c)];
        }
      }
    }
  }
  return grads;
}

struct Tensors {
  Tensor q, k, v, d_o, dq, dk, dv;
};

Tensors computed(const Sizes& z, const AttentionOptions& options, Device device) {
  Tensors t{.q = randn({z.sq, z.b, z.n * z.d}, Seed{1}, DType::f64, device),
            .k = randn({z.sk, z.b, z.g * z.d}, Seed{2}, DType::f64, device),
            .v = randn({z.sk, z.b, z.g * z.dv}, Seed{3}, DType::f64, device),
            .d_o = randn({z.sq, z.b, z.n * z.dv}, Seed{4}, DType::f64, device),
            .dq = {},
            .dk = {},
            .dv = {}};
  t.dq = empty_like(t.q), t.dk = empty_like(t.k), t.dv = empty_like(t.v);
  Tensor o = empty_like(t.d_o), lse = empty({z.b, z.n, z.sq}, DType::f64, device);
  const AttentionInputs in{.q = heads_of(t.q, z.d, 0, z.n),
                           .k = heads_of(t.k, z.d, 0, z.g),
                           .v = heads_of(t.v, z.dv, 0, z.g)};
  attention(in, options, heads_of(o, z.dv, 0, z.n), lse);
  attention_backward(in, options, heads_of(o, z.dv, 0, z.n), lse, heads_of(t.d_o, z.dv, 0, z.n),
                     {.dq = heads_of(t.dq, z.d, 0, z.n),
                      .dk = heads_of(t.dk, z.d, 0, z.g),
                      .dv = heads_of(t.dv, z.dv, 0, z.g)});
  return t;
}

void expect_near(const Tensor& a, const std::vector<double>& b) {
  const std::vector<double> values = to_values(a);
  for (size_t i = 0; i < b.size(); ++i) ASSERT_NEAR(values[i], b[i], 1e-12) << i;
}

// Across the blocks of 64 queries and keys, and with heads that share a key head.
TEST(CpuAttentionBackward, MatchesThePlainDefinition) {
  const Sizes sizes[] = {{5, 5, 1, 1, 1, 4, 4},
                         {70, 70, 2, 4, 2, 8, 8},   // an odd block at the end
                         {3, 67, 1, 2, 1, 4, 4},    // the last queries of a longer past
                         {66, 66, 1, 2, 2, 8, 4}};  // values narrower than queries
  AttentionOptions capped, windowed;
  capped.softcap = 2;
  windowed.window_left = 9;
  AttentionOptions both_ways;
  both_ways.causal = false;
  for (const Sizes& z : sizes) {
    for (const AttentionOptions& options : {AttentionOptions{}, capped, windowed, both_ways}) {
      const Tensors t = computed(z, options, test_device());
      const Gradients3 expected =
          plain(z, options, to_values(t.q), to_values(t.k), to_values(t.v), to_values(t.d_o));
      expect_near(t.dq, expected.dq);
      expect_near(t.dk, expected.dk);
      expect_near(t.dv, expected.dv);
    }
  }
}

TEST(CpuAttentionBackward, BitsDoNotDependOnTheNumberOfThreads) {
  const Sizes z{200, 200, 1, 2, 1, 8, 8};
  Runtime one({.threads = 1}), three({.threads = 3});
  const Tensors a = computed(z, {}, one.device()), b = computed(z, {}, three.device());
  EXPECT_EQ(to_values(a.dq), to_values(b.dq));
  EXPECT_EQ(to_values(a.dk), to_values(b.dk));
  EXPECT_EQ(to_values(a.dv), to_values(b.dv));
}

// By shapes alone: few (sequence, key head) pairs are split, many share 16 accumulators.
TEST(CpuAttentionBackward, WorkIsSplitUntilThereAreSixteenParts) {
  Runtime meta({.kind = DeviceKind::meta});
  const auto split = [&](int64_t s, int64_t b, int64_t n, int64_t g) {
    const Tensor q = empty({s, b, n * 8}, DType::f32, meta.device());
    const Tensor k = empty({s, b, g * 8}, DType::f32, meta.device());
    return cpu::attention_backward_split(
        {.q = heads_of(q, 8, 0, n), .k = heads_of(k, 8, 0, g), .v = heads_of(k, 8, 0, g)});
  };
  EXPECT_EQ(split(64 * 40, 1, 1, 1).splits, 16);
  EXPECT_EQ(split(64 * 40, 1, 1, 1).slots, 16);
  EXPECT_EQ(split(64 * 2, 1, 2, 1).splits, 4) << "no more parts than blocks of queries";
  EXPECT_EQ(split(64 * 40, 3, 1, 1).splits, 6);
  EXPECT_EQ(split(64 * 40, 3, 1, 1).slots, 18);
  EXPECT_EQ(split(64, 8, 8, 8).splits, 1);
  EXPECT_EQ(split(64, 8, 8, 8).slots, 16);
  EXPECT_EQ(split(64, 2, 2, 2).slots, 4) << "no more accumulators than heads";
}

TEST(CpuAttentionBackward, TheWorkspaceHoldsDkAndDvOfEverySlot) {
  Runtime meta({.kind = DeviceKind::meta});
  const auto bytes = [&](DType dtype, AttentionPass pass) {
    const Tensor x = empty({128, 1, 16}, dtype, meta.device());
    const HeadView view = heads_of(x, 16, 0, 1);
    return cpu::attention_workspace_bytes({.q = view, .k = view, .v = view}, pass);
  };
  EXPECT_EQ(bytes(DType::f32, AttentionPass::forward), 0);
  EXPECT_EQ(bytes(DType::f32, AttentionPass::backward), 2 * (2 * 128 * 16) * 4);  // two blocks
  EXPECT_EQ(bytes(DType::f64, AttentionPass::backward), 2 * (2 * 128 * 16) * 8);
}

}  // namespace
}  // namespace phx::kernels
