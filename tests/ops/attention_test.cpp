#include "phalanx/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/core/philox.h"
#include "phalanx/core/segment.h"
#ifdef PHX_HAVE_CUDA
#include "phalanx/kernels/cuda/attention_own.h"
#include "phalanx/kernels/cuda/attention_trust.h"
#endif
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

// A problem in plain numbers: q [sq, b, n, d], k [sk, b, g, d], v [sk, b, g, dv].
struct Problem {
  int64_t sq, sk, b, n, g, d;
  AttentionOptions options;
  int64_t dv = 0;  // 0: as d
  int64_t value_channels() const { return dv > 0 ? dv : d; }
};

// The definition, one query at a time. Returns o [sq, b, n, dv].
std::vector<double> naive(const Problem& p, const std::vector<double>& q,
                          const std::vector<double>& k, const std::vector<double>& v) {
  const AttentionOptions& options = p.options;
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(double(p.d));
  const uint64_t key = philox_key(options.random.seed, options.random.site, options.random.step);
  const int64_t dv = p.value_channels();
  std::vector<double> o(p.sq * p.b * p.n * dv, 0.0);
  for (int64_t b = 0; b < p.b; ++b) {
    for (int64_t n = 0; n < p.n; ++n) {
      for (int64_t i = 0; i < p.sq; ++i) {
        const int64_t position = i + p.sk - p.sq, kv = n / (p.n / p.g);
        const double* query = &q[((i * p.b + b) * p.n + n) * p.d];
        std::vector<double> weights(p.sk, 0.0);
        double sum = 0;
        for (int64_t j = 0; j < p.sk; ++j) {
          if (options.causal && j > position) continue;
          if (options.window_left >= 0 && j < position - options.window_left) continue;
          double score = 0;
          for (int64_t c = 0; c < p.d; ++c)
            score += query[c] * k[((j * p.b + b) * p.g + kv) * p.d + c];
          score *= scale;
          if (options.softcap > 0) score = options.softcap * std::tanh(score / options.softcap);
          weights[j] = std::exp(score);  // scores of the tests are small
          sum += weights[j];
        }
        for (int64_t j = 0; j < p.sk; ++j) {
          double weight = weights[j] / sum;
          if (options.dropout > 0) {
            // Key 64 i + 8 j + 2 c + e is byte 2 j + e of call 4 i + c; 77 of 256 are dropped at
            // 0.3.
            const Philox4 bits = philox4x32(key, uint32_t(options.random.samples.first + b),
                                            uint32_t(options.random.first_head + n),
                                            uint32_t(position), uint32_t(j / 64 * 4 + j % 8 / 2));
            const int64_t byte = j % 64 / 8 * 2 + j % 2;
            const double threshold = std::round(options.dropout * 256);
            const bool kept = (bits.x[byte / 4] >> (8 * (byte % 4)) & 255) >= threshold;
            weight = kept ? weight / (1 - threshold / 256) : 0.0;
          }
          for (int64_t c = 0; c < dv; ++c)
            o[((i * p.b + b) * p.n + n) * dv + c] +=
                weight * v[((j * p.b + b) * p.g + kv) * dv + c];
        }
      }
    }
  }
  return o;
}

void expect_matches_naive(const Problem& p, double tolerance = 1e-12, DType dtype = DType::f64) {
  const Tensor q = randn({p.sq, p.b, p.n * p.d}, Seed{1}, dtype);
  const Tensor k = randn({p.sk, p.b, p.g * p.d}, Seed{2}, dtype);
  const Tensor v = randn({p.sk, p.b, p.g * p.value_channels()}, Seed{3}, dtype);
  const Tensor o = attention(q, k, v, {p.n, p.g, p.d, p.dv}, p.options);
  const Tensor expected = from_values(naive(p, to_values(q), to_values(k), to_values(v)), o.shape(),
                                      DType::f64, test_device());
  expect_close(o, expected, tolerance);
}

Function packed_attention(const QkvHeads& heads, const AttentionOptions& options) {
  return [=](std::span<const Tensor> in) { return attention(in[0], heads, options); };
}

Function separate_attention(const QkvHeads& heads, const AttentionOptions& options) {
  return [=](std::span<const Tensor> in) { return attention(in[0], in[1], in[2], heads, options); };
}

// The columns of x [s, b, total]: [begin, begin + count) of the last dimension.
Tensor columns(const Tensor& x, int64_t begin, int64_t count) {
  const auto values = to_values(x);
  std::vector<double> cut;
  for (int64_t row = 0; row < x.dim(0) * x.dim(1); ++row)
    for (int64_t c = begin; c < begin + count; ++c) cut.push_back(values[row * x.dim(2) + c]);
  return from_values(cut, {x.dim(0), x.dim(1), count}, x.dtype(), x.device());
}

AttentionOptions dropout_options(double p) {
  return {.dropout = p,
          .random = {.seed = 7, .site = 11, .step = 3, .samples = {.first = 5}, .first_head = 2}};
}

TEST(Attention, MatchesHandWorkedValues) {
  // One head of one channel, scale 1. Query 0 sees key 0 only. Query 1 has scores 0 and ln 3, so
  // weights 1/4 and 3/4.
  const Tensor qkv = from_values(std::vector<double>{2, 0, 8, 1, std::log(3.0), 4}, {2, 1, 3},
                                 DType::f64, test_device());
  const auto o = to_values(attention(qkv, {1, 1, 1}, {.scale = 1}));
  EXPECT_DOUBLE_EQ(o[0], 8.0);
  EXPECT_DOUBLE_EQ(o[1], 5.0);
}

TEST(Attention, LogSumExpIsNaturalAndOfTheFinalScores) {
  const Tensor q = from_values(std::vector<double>{1, 1}, {2, 1, 1}, DType::f64, test_device());
  const Tensor k =
      from_values(std::vector<double>{0, std::log(3.0)}, {2, 1, 1}, DType::f64, test_device());
  Tensor o = empty_like(q), lse = empty({1, 1, 2}, DType::f64, test_device());
  const kernels::AttentionInputs in{
      .q = heads_of(q, 1, 0, 1), .k = heads_of(k, 1, 0, 1), .v = heads_of(k, 1, 0, 1)};
  kernels::attention(in, {.scale = 1}, heads_of(o, 1, 0, 1), lse);
  EXPECT_DOUBLE_EQ(to_values(lse)[0], 0.0);
  EXPECT_DOUBLE_EQ(to_values(lse)[1], std::log(4.0));
}

TEST(Attention, MatchesTheDefinitionCausalOrNot) {
  for (bool causal : {true, false})
    for (int64_t s : {1, 5, 64, 65, 150})  // about the block of 64
      expect_matches_naive({s, s, 2, 2, 2, 24, {.causal = causal}});
}

TEST(Attention, SharesKeyHeadsAmongGroups) {
  expect_matches_naive({70, 70, 2, 6, 2, 16, {}});  // grouped
  expect_matches_naive({70, 70, 2, 3, 1, 16, {}});  // one for all
}

TEST(Attention, WindowHidesEarlierKeys) {
  for (bool causal : {true, false})
    for (int window : {0, 1, 17, 64, 100, 1000})
      expect_matches_naive({200, 200, 1, 2, 1, 8, {.causal = causal, .window_left = window}});
}

TEST(Attention, SoftcapBendsScores) {
  expect_matches_naive({90, 90, 2, 2, 1, 16, {.softcap = 2.0}});
}

TEST(Attention, DropoutMaskBelongsToGlobalIndices) {
  expect_matches_naive({150, 150, 2, 4, 2, 8, dropout_options(0.3)});
  AttentionOptions windowed = dropout_options(0.5);
  windowed.window_left = 70;
  expect_matches_naive({150, 150, 2, 4, 2, 8, windowed});
}

TEST(Attention, FewerQueriesThanKeysAreTheLastOnes) {
  for (int64_t sq : {1, 3, 65}) {
    expect_matches_naive({sq, 130, 2, 4, 2, 16, {}});
    expect_matches_naive({sq, 130, 2, 4, 2, 16, {.window_left = 20}});
    expect_matches_naive({sq, 130, 2, 4, 2, 16, dropout_options(0.2)});
  }
  expect_matches_naive({70, 9, 1, 2, 2, 16, {.causal = false}});
}

TEST(Attention, EveryHeadSizeMatchesTheDefinition) {
  for (int64_t d : {1, 7, 48, 64, 80, 96, 128, 192, 256}) {
    expect_matches_naive({75, 75, 1, 2, 1, d, {}});
    // f32: sums of up to 256 products of order 1, and exp to 2.5 units in the last place.
    expect_matches_naive({75, 75, 1, 2, 1, d, {}}, 3e-6, DType::f32);
  }
}

TEST(Attention, ValueHeadsMayBeNarrowerThanQueryHeads) {
  for (const auto& [d, dv] : {std::pair(192, 128), std::pair(24, 16), std::pair(9, 1)}) {
    expect_matches_naive({150, 150, 2, 4, 2, d, {}, dv});
    expect_matches_naive({75, 75, 1, 2, 1, d, {.causal = false}, dv}, 3e-6, DType::f32);
  }
  AttentionOptions all = dropout_options(0.3);
  all.window_left = 40;
  all.softcap = 2;
  expect_matches_naive({70, 130, 2, 4, 2, 24, all, 16});
}

TEST(Attention, SixteenBitTypesRoundOnceAtTheStore) {
  const Problem p{75, 75, 1, 4, 2, 32, {}};
  expect_matches_naive(p, 1.0 / 256, DType::bf16);  // half a unit of 8 bits
  expect_matches_naive(p, 1.0 / 2048, DType::f16);
}

TEST(Attention, PackedQkvEqualsSeparateTensors) {
  const QkvHeads heads{4, 2, 12};
  const Tensor qkv = randn({70, 2, 8 * 12}, Seed{4});
  const Tensor q = columns(qkv, 0, 48), k = columns(qkv, 48, 24), v = columns(qkv, 72, 24);
  const Gradients whole = gradients_of(packed_attention(heads, {}), std::vector<Tensor>{qkv});
  const Gradients parts = gradients_of(separate_attention(heads, {}), std::vector<Tensor>{q, k, v});
  expect_close(whole.output, parts.output, 0);
  expect_close(columns(whole.inputs[0], 0, 48), parts.inputs[0], 0);
  expect_close(columns(whole.inputs[0], 48, 24), parts.inputs[1], 0);
  expect_close(columns(whole.inputs[0], 72, 24), parts.inputs[2], 0);
}

TEST(Attention, KeysAndValuesInOneTensorEqualSeparateOnes) {
  const QkvHeads heads{.n = 4, .g = 2, .d = 12, .dv = 7};
  const Tensor q = randn({70, 2, 48}, Seed{4}), kv = randn({70, 2, 38}, Seed{5});
  const Tensor k = columns(kv, 0, 24), v = columns(kv, 24, 14);
  const Gradients joint =
      gradients_of([&](std::span<const Tensor> in) { return attention(in[0], in[1], heads); },
                   std::vector<Tensor>{q, kv});
  const Gradients parts = gradients_of(separate_attention(heads, {}), std::vector<Tensor>{q, k, v});
  expect_close(joint.output, parts.output, 0);
  expect_close(joint.inputs[0], parts.inputs[0], 0);
  expect_close(columns(joint.inputs[1], 0, 24), parts.inputs[1], 0);
  expect_close(columns(joint.inputs[1], 24, 14), parts.inputs[2], 0);
}

TEST(Attention, PackedSequencesEqualSeparateOnes) {
  const QkvHeads heads{4, 2, 8};
  // With dropout each is a sample, so that its mask is that of a sample alone.
  for (double p : {0.0, 0.3}) {
    AttentionOptions options = dropout_options(p);
    const std::vector<int64_t> ends =
        p > 0 ? std::vector<int64_t>{0, 50, 100, 150} : std::vector<int64_t>{0, 3, 3, 80, 81, 150};
    options.random.samples.tokens = 50;
    const Tensor cu = from_ints(ends, {int64_t(ends.size())}, DType::i32, test_device());
    const Tensor all = randn({150, 1, 64}, Seed{5});
    const Gradients together = gradients_of(
        [&](std::span<const Tensor> in) {
          return attention(in[0], heads, options, {.cu_seqlens = cu, .max_seqlen = 77});
        },
        std::vector<Tensor>{all}, Seed{9});
    const Tensor r = randn({150, 1, 32}, Seed{9});  // what gradients_of drew for the output
    for (size_t i = 0; i + 1 < ends.size(); ++i) {
      const int64_t begin = ends[i], count = ends[i + 1] - ends[i];
      if (count == 0) continue;
      AttentionOptions own = options;
      own.random.samples.first += int64_t(i);
      const Function weighted = packed_attention(heads, own);
      Tensor x = all.rows(begin, count);
      Segment segment(std::span(&x, 1), [&](std::span<const Tensor> in) {
        return std::vector<Tensor>{weighted(in)};
      });
      const Tensor part = r.rows(begin, count);
      const Tensor y = segment.outputs()[0];  // the backward drops the segment's own
      const Tensor dx = segment.backward(std::span(&part, 1))[0];
      expect_close(together.output.rows(begin, count), y, 1e-14);
      expect_close(together.inputs[0].rows(begin, count), dx, 1e-13);
    }
  }
}

// [s, b, ..] three times, as the separate op takes them.
std::vector<Tensor> separate_inputs(int64_t s, int64_t b, const QkvHeads& heads, DType dtype) {
  return {randn({s, b, heads.n * heads.d}, Seed{1}, dtype),
          randn({s, b, heads.g * heads.d}, Seed{2}, dtype),
          randn({s, b, heads.g * heads.value_channels()}, Seed{3}, dtype)};
}

Function separate_on(const std::vector<int64_t>& ends, int64_t longest, const QkvHeads& heads,
                     const AttentionOptions& options) {
  return [=](std::span<const Tensor> in) {
    const Tensor cu = from_ints(ends, {int64_t(ends.size())}, DType::i32, in[0].device());
    return attention(in[0], in[1], in[2], heads, options,
                     {.cu_seqlens = cu, .max_seqlen = longest});
  };
}

TEST(Attention, PackedSequencesWithNarrowerValueHeadsEqualSeparateOnes) {
  const QkvHeads heads{4, 2, 12, 8};
  const std::vector<Tensor> in = separate_inputs(100, 1, heads, DType::f64);
  const Tensor together = separate_on({0, 30, 100}, 70, heads, {})(in);
  for (const auto& [begin, count] : {std::pair(0, 30), std::pair(30, 70)})
    expect_close(together.rows(begin, count),
                 attention(in[0].rows(begin, count), in[1].rows(begin, count),
                           in[2].rows(begin, count), heads),
                 1e-14);
}

TEST(Attention, DropoutOfASampleDoesNotDependOnTheRowThatItIsPackedInto) {
  const QkvHeads heads{4, 2, 8};
  AttentionOptions options = dropout_options(0.3);
  options.random.samples.tokens = 75;
  options.random.samples.stride = 4;
  const auto run = [&](const Tensor& x, const std::vector<int64_t>& ends, int64_t first) {
    AttentionOptions placed = options;
    placed.random.samples.first = first;
    const Tensor cu = from_ints(ends, {int64_t(ends.size())}, DType::i32, test_device());
    return attention(x, heads, placed, {.cu_seqlens = cu, .max_seqlen = 72});
  };
  const Tensor x = randn({150, 1, 64}, Seed{5});
  const Tensor both = run(x, {0, 3, 75, 110, 111, 150}, 20);
  const Tensor one = run(x.rows(0, 75), {0, 3, 75}, 20);
  const Tensor two = run(x.rows(75, 75), {0, 35, 36, 75}, 24);
  expect_close(both.rows(0, 75), one, 0);
  expect_close(both.rows(75, 75), two, 0);
}

TEST(Attention, GradientsMatchFiniteDifferences) {
  const QkvHeads heads{4, 2, 3};
  AttentionOptions dropped = dropout_options(0.4);
  dropped.softcap = 1.5;
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.causal = false}, AttentionOptions{.window_left = 2},
        AttentionOptions{.softcap = 1.5}, dropped})
    expect_gradients_match(packed_attention(heads, options), {randn({7, 2, 24}, Seed{1})});
}

TEST(Attention, GradientsMatchFiniteDifferencesAcrossBlocks) {
  expect_gradients_match(packed_attention({1, 1, 2}, {.window_left = 66}),
                         {randn({135, 1, 6}, Seed{1})});
  expect_gradients_match(
      separate_attention({2, 1, 2}, {}),
      {randn({66, 1, 4}, Seed{1}), randn({70, 1, 2}, Seed{2}), randn({70, 1, 2}, Seed{3})});
}

TEST(Attention, GradientsWithNarrowerValueHeadsMatchFiniteDifferences) {
  const QkvHeads heads{4, 2, 5, 3};
  AttentionOptions dropped = dropout_options(0.4);
  dropped.softcap = 1.5;
  for (const AttentionOptions& options : {AttentionOptions{}, dropped})
    expect_gradients_match(separate_attention(heads, options),
                           separate_inputs(7, 2, heads, DType::f64));
  expect_gradients_match(separate_on({0, 3, 70, 72}, 67, {2, 1, 3, 2}, {}),
                         separate_inputs(72, 1, {2, 1, 3, 2}, DType::f64));
}

TEST(Attention, ResultsDoNotDependOnTheNumberOfThreads) {
  auto bytes = [](int threads) {
    Runtime runtime({.threads = threads});
    const Tensor qkv = randn({200, 2, 4 * 16}, Seed{1}, DType::f32, runtime.device());
    const Gradients result =
        gradients_of(packed_attention({2, 1, 16}, {}), std::vector<Tensor>{qkv});
    return std::pair(to_values(result.output), to_values(result.inputs[0]));
  };
  EXPECT_EQ(bytes(1), bytes(2));
  EXPECT_EQ(bytes(1), bytes(5));
}

TEST(Attention, MetaAllocatesLikeCpu) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    expect_meta_allocates_like_cpu([&](Device device) {
      gradients_of(packed_attention({4, 2, 24}, {}),
                   std::vector<Tensor>{zeros({100, 2, 8 * 24}, dtype, device)});
    });
  }
  expect_meta_allocates_like_cpu([&](Device device) {
    const int64_t ends[] = {0, 40, 100};
    const Tensor cu = from_ints(ends, {3}, DType::i32, device);
    gradients_of(
        [&](std::span<const Tensor> in) {
          return attention(in[0], {4, 2, 24}, {}, {.cu_seqlens = cu, .max_seqlen = 60});
        },
        std::vector<Tensor>{zeros({100, 1, 8 * 24}, DType::f32, device)});
  });
}

TEST(Attention, MetaAllocatesLikeCpuWithNarrowerValueHeads) {
  expect_meta_allocates_like_cpu([&](Device device) {
    gradients_of(separate_attention({4, 2, 24, 16}, {}),
                 std::vector<Tensor>{zeros({100, 2, 4 * 24}, DType::f32, device),
                                     zeros({100, 2, 2 * 24}, DType::f32, device),
                                     zeros({100, 2, 2 * 16}, DType::f32, device)});
  });
}

TEST(Attention, MetaCountsVisiblePairsOnly) {
  auto flops = [](const AttentionOptions& options) {
    Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cpu});
    attention(empty({10, 2, 6 * 8}, DType::f32, meta.device()), {2, 2, 8}, options);
    return meta.cost().flops;
  };
  const int64_t each = 4 * 2 * 2 * 8;  // 4 flops a channel, b = 2, n = 2, d = 8
  EXPECT_EQ(flops({.causal = false}), 100 * each);
  EXPECT_EQ(flops({}), 55 * each);
  EXPECT_EQ(flops({.window_left = 1}), 19 * each);
}

// Which kernels serve a problem on the GPU; asked of a meta device that stands for it.
std::string backend(const Problem& p, DType dtype, kernels::AttentionPass pass,
                    bool deterministic = false) {
  Runtime meta(
      {.kind = DeviceKind::meta, .target = DeviceKind::cuda, .deterministic = deterministic});
  const Tensor q = empty({p.sq, p.b, p.n * p.d}, dtype, meta.device());
  const Tensor k = empty({p.sk, p.b, p.g * p.d}, dtype, meta.device());
  const kernels::AttentionInputs in{
      .q = heads_of(q, p.d, 0, p.n), .k = heads_of(k, p.d, 0, p.g), .v = heads_of(k, p.d, 0, p.g)};
  return kernels::attention_backend_name(in, p.options, pass);
}

TEST(Attention, BackendOnTheGpuIsKnownBeforehand) {
  using enum kernels::AttentionPass;
  const Problem plain{256, 256, 2, 8, 2, 64, {}};
  for (auto pass : {forward, backward}) {
    EXPECT_EQ(backend(plain, DType::bf16, pass), "cuDNN");
    EXPECT_EQ(backend(plain, DType::f32, pass), "own");
    EXPECT_EQ(backend({256, 256, 2, 8, 2, 64, {.dropout = 0.1}}, DType::bf16, pass), "own");
    EXPECT_EQ(backend({256, 256, 2, 8, 2, 64, {.softcap = 30}}, DType::f16, pass), "own");
    EXPECT_EQ(backend({256, 256, 2, 8, 2, 68, {}}, DType::bf16, pass), "own");
    EXPECT_EQ(backend({1, 256, 2, 8, 2, 64, {}}, DType::bf16, pass), "own");
  }
  EXPECT_EQ(backend(plain, DType::bf16, forward, /*deterministic=*/true), "cuDNN");
  EXPECT_EQ(backend(plain, DType::bf16, backward, /*deterministic=*/true), "cuDNN");
  // The scores of a key head, 2 x 4 x 65536^2 bytes, are beyond what may be kept of them.
  const Problem longer{65536, 65536, 1, 8, 2, 64, {}};
  EXPECT_EQ(backend(longer, DType::bf16, backward), "cuDNN");
  EXPECT_EQ(backend(longer, DType::bf16, backward, /*deterministic=*/true), "own");
}

TEST(Attention, DeterministicBackwardGetsAsManyHeadsAsFitIntoItsBudget) {
  const auto chunk = [](int64_t s, int64_t b, int64_t n, int64_t g) {
    Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
    const Tensor q = empty({s, b, n * 64}, DType::bf16, meta.device());
    const Tensor k = empty({s, b, g * 64}, DType::bf16, meta.device());
    const auto found = kernels::deterministic_chunk(
        {.q = heads_of(q, 64, 0, n), .k = heads_of(k, 64, 0, g), .v = heads_of(k, 64, 0, g)});
    return std::pair(found.sequences, found.key_heads);
  };
  EXPECT_EQ(chunk(1024, 64, 12, 12), std::pair(int64_t{64}, int64_t{12}));  // 1.5 GiB in one go
  EXPECT_EQ(chunk(4096, 4, 32, 8), std::pair(int64_t{2}, int64_t{8}));      // 1 GiB a sequence
  EXPECT_EQ(chunk(8192, 2, 32, 8), std::pair(int64_t{1}, int64_t{4}));      // 4 GiB a sequence
  EXPECT_EQ(chunk(8192, 2, 36, 9), std::pair(int64_t{1}, int64_t{3}));      // a divisor of 9
  EXPECT_EQ(chunk(32768, 1, 32, 8), std::pair(int64_t{0}, int64_t{0}));     // 8 GiB a key head
}

// Outputs and gradients have one rounding to `dtype` each; bf16 and f16 also round the weights and
// their gradients before the second products, as every flash attention does.
double cuda_tolerance(DType dtype) {
  return dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 4e-3 : 3e-2;
}

void expect_cuda_matches(const Problem& p, DType dtype) {
  SCOPED_TRACE(::testing::Message()
               << "s " << p.sq << ", n " << p.n << ", g " << p.g << ", d " << p.d << ", " << dtype);
  expect_cuda_matches_cpu(packed_attention({p.n, p.g, p.d}, p.options),
                          {randn({p.sq, p.b, (p.n + 2 * p.g) * p.d}, Seed{1}, dtype)},
                          cuda_tolerance(dtype));
}

// f32 takes our own kernels, 16 bits take cuDNN's. One test a type and head size: a race checker is
// slow.
void expect_cuda_matches_at_odd_sizes(DType dtype, int64_t head_dim) {
  for (bool causal : {true, false})
    for (int64_t s : {1, 63, 64, 65, 200})
      expect_cuda_matches({s, s, 2, 4, 2, head_dim, {.causal = causal}}, dtype);
}
#define PHX_ODD_SIZES(d)                                                              \
  PHX_CUDA_TEST(Attention, CudaMatchesCpuAtOddSizesF32Head##d) {                      \
    expect_cuda_matches_at_odd_sizes(DType::f32, d);                                  \
  }                                                                                   \
  PHX_CUDA_TEST(Attention, CudaMatchesCpuAtOddSizes16BitHead##d) {                    \
    for (DType t : {DType::bf16, DType::f16}) expect_cuda_matches_at_odd_sizes(t, d); \
  }
PHX_ODD_SIZES(64)
PHX_ODD_SIZES(96)
PHX_ODD_SIZES(128)
PHX_ODD_SIZES(192)
PHX_ODD_SIZES(256)
#undef PHX_ODD_SIZES

PHX_CUDA_TEST(Attention, CudaMatchesCpuAtOddHeadSizes) {  // own kernels for every type
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t d : {1, 7, 20, 65, 130, 255}) expect_cuda_matches({77, 77, 2, 3, 1, d, {}}, dtype);
}

PHX_CUDA_TEST(Attention, CudaMatchesCpuWithWindowSoftcapAndDropout) {
  AttentionOptions dropped = dropout_options(0.3);
  dropped.window_left = 40;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const AttentionOptions& options :
         {AttentionOptions{.window_left = 0}, AttentionOptions{.window_left = 70},
          AttentionOptions{.causal = false, .window_left = 33}, AttentionOptions{.softcap = 2.0},
          dropout_options(0.3), dropped})
      expect_cuda_matches({150, 150, 2, 4, 2, 64, options}, dtype);
}

// As in multi-latent attention. f32, dropout and decoding take our own kernels, the others cuDNN's.
PHX_CUDA_TEST(Attention, CudaMatchesCpuWithNarrowerValueHeads) {
  const auto check = [](int64_t s, const QkvHeads& heads, const AttentionOptions& options,
                        DType dtype) {
    SCOPED_TRACE(::testing::Message() << "s " << s << ", n " << heads.n << ", g " << heads.g
                                      << ", d " << heads.d << " / " << heads.dv << ", " << dtype);
    expect_cuda_matches_cpu(separate_attention(heads, options), separate_inputs(s, 2, heads, dtype),
                            cuda_tolerance(dtype));
  };
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (int64_t s : {64, 200, 257})
      for (bool causal : {true, false}) check(s, {4, 4, 192, 128}, {.causal = causal}, dtype);
    check(150, {4, 2, 192, 128}, {}, dtype);
    check(150, {4, 4, 96, 64}, {.window_left = 40}, dtype);
    check(150, {4, 2, 21, 13}, {}, dtype);
    check(150, {4, 4, 192, 128}, dropout_options(0.3), dtype);
  }
}

PHX_CUDA_TEST(Attention, CudaMatchesCpuOnPackedSequencesWithNarrowerValueHeads) {
  for (const QkvHeads& heads : {QkvHeads{4, 4, 192, 128}, QkvHeads{4, 2, 192, 128}})
    for (const std::vector<int64_t>& ends :
         {std::vector<int64_t>{0, 3, 3, 80, 81, 273}, std::vector<int64_t>{0, 128, 256, 273, 273}})
      for (DType dtype : {DType::f32, DType::bf16, DType::f16})
        expect_cuda_matches_cpu(separate_on(ends, 273, heads, {}),
                                separate_inputs(273, 1, heads, dtype), cuda_tolerance(dtype));
}

PHX_CUDA_TEST(Attention, DeterministicBackwardWithNarrowerValueHeadsGivesTheSameBytesTwice) {
  Runtime runtime({.kind = DeviceKind::cuda, .deterministic = true});
  const QkvHeads heads{4, 4, 192, 128};
  std::vector<Tensor> in;
  for (const Tensor& x : separate_inputs(700, 2, heads, DType::bf16))
    in.push_back(to_device(x, runtime.device()));
  const Gradients a = gradients_of(separate_attention(heads, {}), in);
  const Gradients b = gradients_of(separate_attention(heads, {}), in);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(to_values(a.inputs[i]), to_values(b.inputs[i]));
}

PHX_CUDA_TEST(Attention, CudaMatchesCpuOnTheLastQueries) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t sq : {1, 5, 70})
      expect_cuda_matches_cpu(
          separate_attention({4, 2, 64}, {}),
          {randn({sq, 2, 256}, Seed{1}, dtype), randn({130, 2, 128}, Seed{2}, dtype),
           randn({130, 2, 128}, Seed{3}, dtype)},
          cuda_tolerance(dtype));
}

// Without a mask 16 bits take cuDNN's, with a plan for each pair of lengths.
PHX_CUDA_TEST(Attention, CudaMatchesCpuWithMoreOrFewerKeysThanQueries) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const QkvHeads& heads : {QkvHeads{4, 2, 64, 64}, QkvHeads{4, 4, 192, 128}})
      for (const auto& [sq, sk] : {std::pair<int64_t, int64_t>{130, 300}, {130, 200}, {300, 130}}) {
        SCOPED_TRACE(::testing::Message() << sq << " x " << sk << ", " << dtype);
        expect_cuda_matches_cpu(separate_attention(heads, {.causal = false}),
                                {randn({sq, 2, heads.n * heads.d}, Seed{1}, dtype),
                                 randn({sk, 2, heads.g * heads.d}, Seed{2}, dtype),
                                 randn({sk, 2, heads.g * heads.value_channels()}, Seed{3}, dtype)},
                                cuda_tolerance(dtype));
      }
}

Function attention_on(const std::vector<int64_t>& ends, int64_t longest, const QkvHeads& heads,
                      const AttentionOptions& options) {
  return [=](std::span<const Tensor> in) {
    const Tensor cu = from_ints(ends, {int64_t(ends.size())}, DType::i32, in[0].device());
    return attention(in[0], heads, options, {.cu_seqlens = cu, .max_seqlen = longest});
  };
}

PHX_CUDA_TEST(Attention, CudaMatchesCpuOnPackedSequencesWithDropout) {  // own kernels
  AttentionOptions two_samples = dropout_options(0.2);
  two_samples.random.samples.tokens = 75;
  two_samples.random.samples.stride = 3;
  for (DType dtype : {DType::f32, DType::bf16})
    expect_cuda_matches_cpu(attention_on({0, 3, 3, 75, 81, 150}, 72, {4, 2, 64}, two_samples),
                            {randn({150, 1, 8 * 64}, Seed{1}, dtype)}, cuda_tolerance(dtype));
}

PHX_CUDA_TEST(Attention, CudaMatchesCpuOnPackedSequencesOfAnyLength) {  // cuDNN
  // Odd lengths, one token, empty ones between and at the end, one sequence, a bound above the
  // longest.
  const std::vector<std::vector<int64_t>> batches = {{0, 3, 3, 80, 81, 273},
                                                     {0, 273},
                                                     {0, 128, 256, 257, 273, 273, 273, 273, 273},
                                                     {0, 1, 2, 273}};
  AttentionOptions window;
  window.window_left = 50;
  const auto check = [](const std::vector<int64_t>& ends, const AttentionOptions& options,
                        int64_t d, DType dtype) {
    expect_cuda_matches_cpu(attention_on(ends, 273, {4, 2, d}, options),
                            {randn({273, 1, 8 * d}, Seed{1}, dtype)}, cuda_tolerance(dtype));
  };
  for (const std::vector<int64_t>& ends : batches) {
    for (const AttentionOptions& options :
         {AttentionOptions{}, window, AttentionOptions{.causal = false}})
      check(ends, options, 64, DType::bf16);
    for (int64_t d : {32, 80, 96, 128, 192, 256}) check(ends, {}, d, DType::bf16);
    check(ends, {}, 64, DType::f16);
  }
}

PHX_CUDA_TEST(Attention, PackedBatchesOfOneSizeNeedTheSameWorkspaceAsPlanned) {
  const auto bytes = [](Device device, const std::vector<int64_t>& ends, int64_t longest) {
    const Tensor qkv = empty({512, 1, 12 * 64}, DType::bf16, device);
    const Tensor o = empty({512, 1, 8 * 64}, DType::bf16, device);
    const kernels::AttentionInputs in{
        .q = heads_of(qkv, 64, 0, 8),
        .k = heads_of(qkv, 64, 8, 2),
        .v = heads_of(qkv, 64, 10, 2),
        .cu_seqlens = device.kind() == DeviceKind::meta
                          ? empty({int64_t(ends.size())}, DType::i32, device)
                          : from_ints(ends, {int64_t(ends.size())}, DType::i32, device),
        .max_seqlen = longest};
    const HeadView out = heads_of(o, 64, 0, 8);
    return std::pair(
        kernels::attention_workspace_bytes(in, {}, out),
        kernels::attention_backward_workspace_bytes(in, {}, out, out, {in.q, in.k, in.v}));
  };
  Runtime planned({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  const auto plan = bytes(planned.device(), {0, 512}, 512);
  const Device cuda = cuda_test_runtime().device();
  EXPECT_EQ(bytes(cuda, {0, 512}, 512), plan);
  EXPECT_EQ(bytes(cuda, {0, 128, 256, 384, 512, 512, 512, 512, 512}, 128), plan);
  EXPECT_EQ(bytes(cuda, {0, 1, 256, 512, 512}, 256), plan);
}

PHX_CUDA_TEST(Attention, CudaLogSumExpMatchesCpu) {
  for (DType dtype : {DType::f32, DType::bf16}) {  // own, cuDNN
    auto lse_on = [&](Device device) {
      const Tensor qkv = randn({130, 2, 8 * 64}, Seed{1}, dtype, device);
      const kernels::AttentionInputs in{
          .q = heads_of(qkv, 64, 0, 4), .k = heads_of(qkv, 64, 4, 2), .v = heads_of(qkv, 64, 6, 2)};
      Tensor o = empty({130, 2, 4 * 64}, dtype, device);
      Tensor lse = empty({2, 4, 130}, DType::f32, device);
      kernels::attention(in, {}, heads_of(o, 64, 0, 4), lse);
      return to_device(lse, test_device());
    };
    // Both from the same 16-bit inputs, in f32 throughout.
    expect_close(lse_on(cuda_test_runtime().device()), lse_on(test_device()), 1e-4);
  }
}

PHX_CUDA_TEST(Attention, DeterministicBackwardGivesTheSameBytesTwice) {
  Runtime runtime({.kind = DeviceKind::cuda, .deterministic = true});
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Tensor qkv = randn({1000, 2, 8 * 64}, Seed{1}, dtype, runtime.device());
    const Function f = packed_attention({4, 2, 64}, {});
    const Gradients a = gradients_of(f, std::vector<Tensor>{qkv});
    const Gradients b = gradients_of(f, std::vector<Tensor>{qkv});
    EXPECT_EQ(to_values(a.output), to_values(b.output));
    EXPECT_EQ(to_values(a.inputs[0]), to_values(b.inputs[0]));
  }
}

#ifdef PHX_HAVE_CUDA
// A plan whose scale is 1.5 times what it should be: its results are replaced by our own kernels'.
PHX_CUDA_TEST(Attention, AWrongPlanOfCudnnIsFoundAtItsFirstUse) {
  Runtime runtime({.kind = DeviceKind::cuda});
  const auto expect_right = [&](const Function& f, const Tensor& x) {
    kernels::cuda::plant_wrong_plans(runtime);
    const Gradients expected = gradients_of(f, std::vector<Tensor>{x});
    for (int use = 0; use < 2; ++use) {
      const Gradients found = gradients_of(f, std::vector<Tensor>{to_device(x, runtime.device())});
      expect_close(to_device(found.output, test_device()), expected.output,
                   cuda_tolerance(x.dtype()));
      expect_close(to_device(found.inputs[0], test_device()), expected.inputs[0],
                   cuda_tolerance(x.dtype()));
    }
  };
  // Scores of about 4, so that their scale matters.
  const Tensor dense = randn({200, 2, 8 * 64}, Seed{1}, DType::bf16);
  expect_right(packed_attention({4, 2, 64}, {.scale = 0.5}), dense);
  const Tensor packed = randn({273, 1, 8 * 64}, Seed{1}, DType::f16);
  expect_right(attention_on({0, 3, 3, 80, 81, 273}, 273, {4, 2, 64}, {.scale = 0.5}), packed);
}

PHX_CUDA_TEST(Attention, LongSequencesAreTestedInTheirLastRows) {
  Runtime checked({.kind = DeviceKind::cuda});
  kernels::cuda::AttentionTrust trust(checked);
  const Tensor qkv = randn({5000, 2, 8 * 64}, Seed{1}, DType::bf16, checked.device());
  const kernels::AttentionInputs in{
      .q = heads_of(qkv, 64, 0, 4), .k = heads_of(qkv, 64, 4, 2), .v = heads_of(qkv, 64, 6, 2)};
  Tensor o = empty({5000, 2, 4 * 64}, DType::bf16, checked.device());
  Tensor lse = empty({2, 4, 5000}, DType::f32, checked.device());
  const HeadView out = heads_of(o, 64, 0, 4);
  kernels::attention(in, {}, out, lse);
  const Tensor d_o = randn({5000, 2, 4 * 64}, Seed{2}, DType::bf16, checked.device());
  Tensor grads = empty_like(qkv);
  const kernels::AttentionGradients of{heads_of(grads, 64, 0, 4), heads_of(grads, 64, 4, 2),
                                       heads_of(grads, 64, 6, 2)};
  kernels::attention_backward(in, {}, out, lse, heads_of(d_o, 64, 0, 4), of);
  using enum kernels::cuda::AttentionTrust::Verdict;
  EXPECT_EQ(trust.test(in, {}, out, lse), right);
  EXPECT_EQ(trust.test_backward(in, {}, out, lse, heads_of(d_o, 64, 0, 4), of), right);
  // The last row of dk becomes something else.
  Tensor last = grads.rows(4999, 1);
  copy(qkv.rows(0, 1), last);
  EXPECT_EQ(trust.test_backward(in, {}, out, lse, heads_of(d_o, 64, 0, 4), of), wrong);
  set_zero(o);
  EXPECT_EQ(trust.test(in, {}, out, lse), wrong);
}

PHX_CUDA_TEST(Attention, WithoutCudnnOurOwnKernelsRun) {
  Runtime runtime({.kind = DeviceKind::cuda, .cudnn_attention = CudnnUse::off});
  const Tensor qkv = empty({256, 2, 12 * 64}, DType::bf16, runtime.device());
  const kernels::AttentionInputs in{
      .q = heads_of(qkv, 64, 0, 8), .k = heads_of(qkv, 64, 8, 2), .v = heads_of(qkv, 64, 10, 2)};
  EXPECT_STREQ(kernels::attention_backend_name(in, {}, kernels::AttentionPass::forward), "own");
}

PHX_CUDA_TEST(Attention, DeterministicBackwardInPartsEqualsTheWhole) {
  const auto gradient = [](bool deterministic) {
    Runtime runtime({.kind = DeviceKind::cuda, .deterministic = deterministic});
    const Tensor qkv = randn({8192, 2, 24 * 64}, Seed{1}, DType::bf16, runtime.device());
    const Function f = packed_attention({16, 4, 64}, {});  // 2 GiB a sequence
    const Gradients first = gradients_of(f, std::vector<Tensor>{qkv});
    if (deterministic) {
      const Gradients second = gradients_of(f, std::vector<Tensor>{qkv});
      EXPECT_EQ(to_values(first.inputs[0]), to_values(second.inputs[0]));
    }
    return to_device(first.inputs[0], test_device());
  };
  expect_close(gradient(true), gradient(false), cuda_tolerance(DType::bf16));
}

TEST(Attention, FaultsOfCudnnAreKnownByVersion) {
  using kernels::cuda::known_cudnn_fault;
  kernels::cuda::AttentionKind kind{
      .pass = kernels::AttentionPass::backward, .d = 192, .dv = 192, .packed = true};
  EXPECT_NE(known_cudnn_fault(91400, kind), nullptr);
  EXPECT_EQ(known_cudnn_fault(91900, kind), nullptr);
  kind.dv = 128;
  EXPECT_EQ(known_cudnn_fault(91400, kind), nullptr);
  kind.d = 128;
  EXPECT_EQ(known_cudnn_fault(91400, kind), nullptr);
}
#endif

TEST(Attention, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_of([] {
              attention(randn({4, 1, 60}, Seed{1}), {4, 2, 8});
            }),
            "attention: with 4 query heads, 2 key heads and 8 channels a head qkv should be "
            "[s, b, 64], but it is [4, 1, 60]");
  EXPECT_EQ(error_of([] {
              attention(randn({4, 1, 11 * 4}, Seed{1}), {5, 3, 4});
            }),
            "attention: 5 query heads cannot share 3 key heads: the first must be a multiple of "
            "the second");
  EXPECT_EQ(error_of([] {
              const Tensor q = randn({5, 1, 8}, Seed{1}), k = randn({4, 1, 8}, Seed{1});
              attention(q, k, k, {1, 1, 8});
            }),
            "attention: 5 causal queries cannot be the last of 4 keys");
  EXPECT_EQ(error_of([] {
              const Tensor q = randn({4, 1, 8}, Seed{1}), v = randn({4, 1, 12}, Seed{1});
              attention(q, q, v, {1, 1, 8, 12});
            }),
            "attention: value heads have 1 to 8 channels, as many as query heads or fewer, not 12");
  EXPECT_EQ(error_of([] {
              attention(randn({4, 1, 24}, Seed{1}), {1, 1, 8, 4});
            }),
            "attention: within one tensor value heads have the 8 channels of query heads, not 4: "
            "give q, k and v apart");
  EXPECT_EQ(error_of([] {
              const int64_t ends[] = {0, 6, 4};
              attention(
                  randn({4, 1, 24}, Seed{1}), {1, 1, 8}, {},
                  {.cu_seqlens = from_ints(ends, {3}, DType::i32, test_device()), .max_seqlen = 4});
            }),
            "attention: cu_seqlens should rise from 0 to the number of tokens 4 in steps of at "
            "most max_seqlen 4, but sequence 0 is [0, 6)");
}

}  // namespace
}  // namespace phx
