#include "phalanx/ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

struct Case {
  const char* name;
  RopeConfig config;
  RopeHeads heads;
  RopePairs pairs = RopePairs::halves;
  int64_t total = 0;  // heads in x
};

// Heads of 8; the fourth is Megatron's packed order: two groups of (2 queries, key, value).
const Case kCases[] = {
    {"all heads", {.head_dim = 8}, {.first = 0, .n = 3, .d = 8}, RopePairs::halves, 3},
    {"interleaved", {.head_dim = 8}, {.first = 1, .n = 2, .d = 8}, RopePairs::interleaved, 4},
    {"partial",
     {.head_dim = 8, .percent = 0.5},
     {.first = 0, .n = 2, .d = 8},
     RopePairs::halves,
     3},
    {"groups",
     {.head_dim = 8},
     {.first = 0, .n = 3, .d = 8, .groups = 2, .stride = 4},
     RopePairs::halves,
     8},
    {"last channels",
     {.head_dim = 4},
     {.first = 0, .n = 2, .d = 8, .first_channel = 4},
     RopePairs::interleaved,
     2},
};

Tensor table_for(const Case& c, DType dtype = DType::f64, Device device = test_device()) {
  return rope_table(c.config, 40, dtype, device);
}

// One complex multiplication a pair, from the frequencies.
std::vector<double> reference(const Tensor& x, const Case& c, const std::vector<int64_t>& at) {
  std::vector<double> values = to_values(x);
  const auto frequencies = kernels::rope_frequencies(c.config);
  const int64_t pairs = int64_t(frequencies.inverse.size()), width = x.dim(-1);
  for (size_t row = 0; row < at.size(); ++row) {
    for (int64_t head = 0; head < c.total; ++head) {
      const int64_t from_first = head - c.heads.first;
      const int64_t group = c.heads.stride ? from_first / c.heads.stride : 0;
      const int64_t inside = from_first - group * c.heads.stride;
      if (from_first < 0 || group >= c.heads.groups || inside >= c.heads.n) continue;
      double* channels = &values[row * width + head * c.heads.d + c.heads.first_channel];
      for (int64_t i = 0; i < pairs; ++i) {
        const bool halves = c.pairs == RopePairs::halves;
        double &a = channels[halves ? i : 2 * i], &b = channels[halves ? pairs + i : 2 * i + 1];
        const std::complex<double> turned =
            std::complex(a, b) * std::polar(1.0, double(at[row]) * frequencies.inverse[i]);
        a = turned.real();
        b = turned.imag();
      }
    }
  }
  return values;
}

TEST(Rope, MatchesHandWorkedValues) {
  // One head of 2, base irrelevant: position p turns by p radians.
  const Tensor table = rope_table({.head_dim = 2}, 3, DType::f64, test_device());
  const Tensor x =
      from_values(std::vector<double>{1, 0, 1, 0, 0, 1}, {3, 1, 2}, DType::f64, test_device());
  const auto y = to_values(apply_rope(x, table, {.first = 0, .n = 1, .d = 2}));
  const double expected[] = {1, 0, std::cos(1), std::sin(1), -std::sin(2), std::cos(2)};
  for (int i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(y[i], expected[i]);
}

TEST(Rope, FollowsItsDefinition) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Tensor x = randn({5, 2, c.total * 8}, Seed{1});
    std::vector<int64_t> at;
    for (int64_t s = 0; s < 5; ++s) at.insert(at.end(), 2, 7 + s);
    // A few roundings of f64.
    expect_close(apply_rope(x, table_for(c), c.heads, {.pairs = c.pairs, .at = {.offset = 7}}),
                 from_values(reference(x, c, at), x.shape(), DType::f64, test_device()), 1e-15);

    const std::vector<int64_t> given{3, 0, 39, 1, 1, 5, 20, 2, 0, 8};
    for (const Shape& shape : {Shape{5, 2}, Shape{10}}) {
      const Tensor positions = from_ints(given, shape, DType::i32, test_device());
      expect_close(
          apply_rope(x, table_for(c), c.heads, {.pairs = c.pairs, .at = {.positions = positions}}),
          from_values(reference(x, c, given), x.shape(), DType::f64, test_device()), 1e-15);
    }
  }
}

TEST(Rope, InPlaceGivesTheSameInTheSameMemory) {
  for (const Case& c : kCases) {
    const Tensor x = randn({5, 2, c.total * 8}, Seed{1});
    Tensor fresh = to_device(x, test_device());
    const void* memory = fresh.raw();
    const Tensor y =
        apply_rope_in_place(std::move(fresh), table_for(c), c.heads, {.pairs = c.pairs});
    EXPECT_EQ(y.raw(), memory);
    expect_close(y, apply_rope(x, table_for(c), c.heads, {.pairs = c.pairs}), 0);
  }
}

// In place in the middle, where it is nobody else's: neither x nor the gradient.
Function turned_thrice(const Case& c, const Tensor& table, const RopeOptions& options) {
  return [c, table, options](std::span<const Tensor> in) {
    const Tensor twice =
        apply_rope_in_place(apply_rope(in[0], table, c.heads, options), table, c.heads, options);
    return apply_rope(twice, table, c.heads, options);
  };
}

TEST(Rope, GradientsMatchFiniteDifferences) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    expect_gradients_match(turned_thrice(c, table_for(c), {.pairs = c.pairs, .at = {.offset = 3}}),
                           {randn({3, 2, c.total * 8}, Seed{1})});
  }
}

TEST(Rope, BackwardLeavesASharedGradientAlone) {
  const Case& c = kCases[0];
  const Tensor x = randn({3, 2, c.total * 8}, Seed{1}), dy = randn(x.shape(), Seed{2});
  const auto before = to_values(dy);
  Segment segment(std::span(&x, 1), [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{apply_rope(in[0], table_for(c), c.heads)};
  });
  const auto gradients = segment.backward(std::span(&dy, 1));  // dy is held here as well
  EXPECT_EQ(to_values(dy), before);
  EXPECT_NE(to_values(gradients[0]), before);
}

TEST(Rope, MetaAllocatesLikeCpu) {
  for (const Case& c : kCases) {
    expect_meta_allocates_like_cpu([&](Device device) {
      const Tensor table = empty({40, 2, c.config.rotary_dim() / 2}, DType::f32, device);
      gradients_of(turned_thrice(c, table, {.pairs = c.pairs}),
                   std::vector<Tensor>{empty({33, 2, c.total * 8}, DType::bf16, device)});
    });
  }
}

PHX_CUDA_TEST(Rope, CudaMatchesCpuAtOddSizes) {
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.push_back({"wide",
                   {.head_dim = 128},
                   {.first = 0, .n = 5, .d = 128, .groups = 2, .stride = 6},
                   RopePairs::halves,
                   12});
  cases.push_back({"wide interleaved",
                   {.head_dim = 64},
                   {.first = 1, .n = 3, .d = 128, .first_channel = 64},
                   RopePairs::interleaved,
                   5});
  cases.push_back({"odd", {.head_dim = 6}, {.first = 0, .n = 3, .d = 7}, RopePairs::halves, 3});
  cases.push_back({"odd interleaved",
                   {.head_dim = 6},
                   {.first = 0, .n = 3, .d = 7, .first_channel = 1},
                   RopePairs::interleaved,
                   3});
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      // Two turns, each rounded once to the type: 24, 11 or 8 bits.
      const double tolerance = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 2e-3 : 1.6e-2;
      for (bool given : {false, true}) {
        expect_cuda_matches_cpu(
            [&](std::span<const Tensor> in) {
              const Tensor table = table_for(c, DType::f32, in[0].device());
              RopeOptions options{.pairs = c.pairs, .at = {.offset = 2}};
              if (given) options.at.positions = in[1];
              return turned_thrice(c, table, options)(in);
            },
            {randn({37, 3, c.total * c.heads.d}, Seed{1}, dtype),
             rand_ints({37, 3}, 40, Seed{2}, DType::i32)},
            tolerance);
      }
    }
  }
}

TEST(Rope, RefusesToOverwriteWhatOthersHold) {
  Tensor x = randn({2, 1, 8}, Seed{1});
  const Tensor other = x;
  EXPECT_EQ(
      error_of([&] { apply_rope_in_place(std::move(x), table_for(kCases[0]), {.n = 1, .d = 8}); }),
      "rope in place: somebody else still holds x [2, 1, 8] (its producer for its backward, "
      "or another handle); use apply_rope");
}

TEST(Rope, RefusesToOverwriteAGradientThatOthersHold) {
  const Case& c = kCases[0];
  const Tensor x = randn({3, 2, c.total * 8}, Seed{1}), dy = randn(x.shape(), Seed{2});
  const auto before = to_values(dy);
  Segment segment(std::span(&x, 1), [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{
        apply_rope_in_place(apply_rope(in[0], table_for(c), c.heads), table_for(c), c.heads)};
  });
  const std::string error = error_of([&] { segment.backward(std::span(&dy, 1)); });
  EXPECT_NE(error.find("rope in place: somebody else still holds the gradient"), std::string::npos)
      << error;
  EXPECT_EQ(to_values(dy), before);
}

TEST(Rope, BothDirectionsInPlaceTakeNoMemory) {
  const Case& c = kCases[0];
  const Tensor table = table_for(c);
  const Tensor x = randn({3, 2, c.total * 8}, Seed{1}), dy = randn(x.shape(), Seed{2});
  const Function thrice = turned_thrice(c, table, {});
  Segment segment(std::span(&x, 1),
                  [&](std::span<const Tensor> in) { return std::vector<Tensor>{thrice(in)}; });
  test_runtime().allocator().reset_peak();
  const int64_t before = test_runtime().allocator().report().peak_total;
  segment.backward(std::span(&dy, 1));
  // The outer and the inner rope's gradients; the one in the middle turns the outer's.
  EXPECT_LE(test_runtime().allocator().report().peak_total - before, 2 * x.bytes() + 256);
}

TEST(Rope, RefusesPositionsPastTheTable) {
  EXPECT_EQ(error_of([] {
              apply_rope(randn({5, 1, 8}, Seed{1}), table_for(kCases[0]), {.n = 1, .d = 8},
                         {.at = {.offset = 36}});
            }),
            "rope: positions [36, 41) are past the table's 40; make a longer table");
}

}  // namespace
}  // namespace phx
