#include "phalanx/ops/expert_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "phalanx/kernels/cuda/grouped.h"
#include "phalanx/ops/activation.h"
#include "phalanx/ops/linear.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

std::vector<int64_t> ints(const Tensor& x) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < x.numel(); ++i) out.push_back(x.data<int32_t>()[i]);
  return out;
}

Tensor choices(std::vector<int64_t> values, const Shape& shape) {
  return from_ints(values, shape, DType::i32, test_device());
}

TEST(ExpertRows, AreSortedByExpertAndThenByToken) {
  // Three tokens, two choices each; one is dropped.
  const ExpertOrder order = order_by_expert(choices({1, 0, 0, -1, 1, 2}, {3, 2}), 0, 3, 6);
  EXPECT_EQ(ints(order.offsets), (std::vector<int64_t>{0, 2, 4, 5}));
  EXPECT_EQ(ints(order.choice_of), (std::vector<int64_t>{1, 2, 0, 4, 5, -1}));
  EXPECT_EQ(ints(order.row_of), (std::vector<int64_t>{2, 0, 1, -1, 3, 4}));
}

TEST(ExpertRows, OfOtherRanksAreLeftOut) {
  const ExpertOrder order = order_by_expert(choices({1, 0, 0, 3, 1, 2}, {3, 2}), 1, 2, 4);
  EXPECT_EQ(ints(order.offsets), (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(ints(order.row_of), (std::vector<int64_t>{0, -1, -1, -1, 1, 2}));
}

TEST(ExpertRows, MoreThanThereIsRoomForIsAnError) {
  const std::string error = error_of([] {
    order_by_expert(choices({0, 0, 0, 0}, {2, 2}), 0, 1, 3);
  });
  EXPECT_NE(error.find("experts got 4 rows, but there is room for 3"), std::string::npos) << error;
}

TEST(ExpertRows, BlocksOfSendersAreMergedExpertByExpert) {
  const Tensor counts = choices({2, 1, 0, 3}, {2, 2});  // sender 0: 2 and 1 rows, sender 1: 0 and 3
  Tensor source = zeros({7}, DType::i32, test_device()), place = source, offsets;
  place = zeros({7}, DType::i32, test_device());
  offsets = zeros({3}, DType::i32, test_device());
  kernels::merge_by_expert(counts, 0, source, place, offsets);
  EXPECT_EQ(ints(offsets), (std::vector<int64_t>{0, 2, 6}));
  EXPECT_EQ(ints(source), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, -1}));
  const Tensor uneven = choices({1, 1, 2, 0}, {2, 2});
  kernels::merge_by_expert(uneven, 0, source, place, offsets);
  EXPECT_EQ(ints(source), (std::vector<int64_t>{0, 2, 3, 1, -1, -1, -1}));
  EXPECT_EQ(ints(place), (std::vector<int64_t>{0, 3, 1, 2, -1, -1, -1}));
}

// Experts by hand: each token through each of its experts, one product at a time.
constexpr int64_t kTokens = 5, kExperts = 4, kWidth = 3, kInner = 6;

Tensor experts(std::span<const Tensor> in, const ExpertOrder& order, bool gated) {
  const Tensor rows = to_expert_rows(in[0], order);                  // [r, h]
  const Tensor weights = to_expert_weights(in[1], order);            // [r]
  const Tensor hidden = grouped_linear(rows, in[2], order.offsets);  // [r, f or 2f]
  const Tensor active = weighted_activation(hidden, weights, order.offsets,
                                            {.kind = kernels::Activation::silu, .gated = gated});
  return from_expert_rows(grouped_linear(active, in[3], order.offsets), order);  // [t, h]
}

std::vector<Tensor> expert_inputs(bool gated, DType dtype = DType::f64) {
  return {randn({kTokens, kWidth}, Seed{1}, dtype), randn({kTokens, 2}, Seed{2}, acc_dtype(dtype)),
          randn({kExperts * kInner, kWidth}, Seed{3}, dtype),
          randn({kExperts * kWidth, gated ? kInner / 2 : kInner}, Seed{4}, dtype)};
}

ExpertOrder some_order() {  // expert 2 gets nothing; one choice is dropped
  return order_by_expert(choices({0, 1, 3, 0, 1, -1, 3, 1, 0, 3}, {kTokens, 2}), 0, kExperts, 12);
}

TEST(ExpertRows, GoThroughTheirExpertAsOneByOne) {
  const std::vector<Tensor> in = expert_inputs(/*gated=*/true);
  const std::vector<double> y = to_values(experts(in, some_order(), true));
  const std::vector<int64_t> chosen{0, 1, 3, 0, 1, -1, 3, 1, 0, 3};
  for (int64_t t = 0; t < kTokens; ++t) {
    std::vector<double> sum(kWidth, 0.0);
    for (int64_t j = 0; j < 2; ++j) {
      const int64_t e = chosen[size_t(2 * t + j)];
      if (e < 0) continue;
      const Tensor one = linear(swiglu(linear(in[0].rows(t, 1), in[2].rows(e * kInner, kInner))),
                                in[3].rows(e * kWidth, kWidth));  // [1, h]
      for (int64_t c = 0; c < kWidth; ++c)
        sum[size_t(c)] += to_values(in[1])[size_t(2 * t + j)] * to_values(one)[size_t(c)];
    }
    for (int64_t c = 0; c < kWidth; ++c)
      EXPECT_NEAR(y[size_t(t * kWidth + c)], sum[size_t(c)], 1e-12) << t;
  }
}

TEST(ExpertRows, GradientsMatchFiniteDifferences) {
  for (const bool gated : {true, false})
    expect_gradients_match(
        [gated](std::span<const Tensor> in) { return experts(in, some_order(), gated); },
        expert_inputs(gated));
}

TEST(ExpertRows, AnExpertWithoutRowsHasAZeroGradient) {
  const std::vector<Tensor> in = expert_inputs(true);
  const Gradients gradients =
      gradients_of([](std::span<const Tensor> x) { return experts(x, some_order(), true); }, in);
  for (const double d : to_values(gradients.inputs[2].rows(2 * kInner, kInner))) EXPECT_EQ(d, 0.0);
}

TEST(ExpertRows, AreReorderedThereAndBack) {
  const Tensor counts = choices({1, 1, 2, 0}, {2, 2});
  Tensor source = zeros({5}, DType::i32, test_device()),
         place = zeros({5}, DType::i32, test_device()),
         offsets = zeros({3}, DType::i32, test_device());
  kernels::merge_by_expert(counts, 0, source, place, offsets);
  const Tensor x = randn({5, 2}, Seed{1});
  const Tensor back = reorder_rows(reorder_rows(x, source, place), place, source);
  expect_close(back.rows(0, 4), x.rows(0, 4), 0);
  expect_gradients_match(
      [&](std::span<const Tensor> in) { return reorder_rows(in[0], source, place); }, {x});
}

TEST(ExpertRows, AllocateOnMetaAsOnCpu) {
  for (const DType dtype : {DType::f32, DType::bf16})
    expect_meta_allocates_like_cpu([dtype](Device device) {
      const Tensor x = randn({kTokens, kWidth}, Seed{1}, dtype, device);
      const Tensor w = randn({kExperts * kInner, kWidth}, Seed{3}, dtype, device);
      const Tensor indices = rand_ints({kTokens, 2}, kExperts, Seed{4}, DType::i32, device);
      const ExpertOrder order = order_by_expert(indices, 0, kExperts, 2 * kTokens);
      grouped_linear(to_expert_rows(x, order), w, order.offsets);
    });
}

Tensor home(const Tensor& x) { return to_device(x, test_device()); }

// What is in rows that are not to be written, and behind the last one of what is read.
constexpr double kPoison = 7, kNan = std::numeric_limits<double>::quiet_NaN();

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  return from_values(std::vector<double>(size_t(shape.numel()), value), shape, dtype, device);
}

// Normals, and NaN in the rows from `used` on.
Tensor rows_of(int64_t used, const Shape& shape, uint64_t seed, DType dtype, Device device) {
  std::vector<double> values = to_values(randn(shape, Seed{seed}));
  const int64_t width = shape.numel() / shape[0];
  std::fill(values.begin() + used * width, values.end(), kNan);
  return from_values(values, shape, dtype, device);
}

// Says which elements of [.., width] differ and how, rather than only that some do.
void expect_same_rows(const Tensor& got, const Tensor& want, double tolerance) {
  const std::vector<double> a = to_values(got), b = to_values(want);
  ASSERT_EQ(a.size(), b.size());
  const size_t width = size_t(got.dim(-1));
  double largest = 0;
  for (const double x : b) largest = std::max(largest, std::abs(x));
  ASSERT_TRUE(std::isfinite(largest)) << "the reference is not finite";
  size_t wrong = 0;
  size_t rows[2] = {~size_t{0}, 0}, columns[2] = {~size_t{0}, 0};
  std::string some;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) <= tolerance * largest) continue;  // false for NaN
    const size_t row = i / width, column = i % width;
    rows[0] = std::min(rows[0], row);
    rows[1] = std::max(rows[1], row);
    columns[0] = std::min(columns[0], column);
    columns[1] = std::max(columns[1], column);
    if (wrong++ < 12) some += str_cat("\n  [", row, ", ", column, "] is ", a[i], ", not ", b[i]);
  }
  EXPECT_EQ(wrong, 0u) << wrong << " of " << a.size() << " differ, in rows " << rows[0] << " to "
                       << rows[1] << " and columns " << columns[0] << " to " << columns[1]
                       << "; the largest is " << largest << some;
}

// An uneven choice of experts, a fifth of them dropped.
Tensor uneven_choices(int64_t t, int64_t k, int64_t experts) {
  std::vector<int64_t> chosen;
  for (const double x : to_values(rand_ints({t, k}, experts * experts * 5 / 4, Seed{1}))) {
    const auto expert = int64_t(std::sqrt(x));
    chosen.push_back(expert < experts ? expert : -1);
  }
  return choices(chosen, {t, k});
}

PHX_CUDA_TEST(ExpertRows, CudaSortsAsCpu) {
  const Device cuda = cuda_test_runtime().device();
  for (const int64_t t : {1, 70, 5000})
    for (const int64_t experts : {1, 7, 300})
      for (const int64_t first : {0, 3}) {
        SCOPED_TRACE(::testing::Message()
                     << t << " tokens, " << experts << " experts from " << first);
        const Tensor indices = uneven_choices(t, 4, experts + 2);
        const ExpertOrder want = order_by_expert(indices, first, experts, 4 * t + 5);
        const ExpertOrder got =
            order_by_expert(to_device(indices, cuda), first, experts, 4 * t + 5);
        EXPECT_EQ(ints(home(got.offsets)), ints(want.offsets));
        EXPECT_EQ(ints(home(got.row_of)), ints(want.row_of));
        EXPECT_EQ(ints(home(got.choice_of)), ints(want.choice_of));
      }
}

PHX_CUDA_TEST(ExpertRows, CudaDropsWhatThereIsNoRoomFor) {
  const Device cuda = cuda_test_runtime().device();
  const ExpertOrder order = order_by_expert(to_device(choices({1, 0, 0, 1, 1, 0}, {3, 2}), cuda),
                                            /*first=*/0, /*count=*/2, /*rows=*/4);
  EXPECT_EQ(ints(home(order.offsets)), (std::vector<int64_t>{0, 3, 4}));
  EXPECT_EQ(ints(home(order.choice_of)), (std::vector<int64_t>{1, 2, 5, 0}));
  EXPECT_EQ(ints(home(order.row_of)), (std::vector<int64_t>{3, 0, 1, -1, -1, 2}));
}

PHX_CUDA_TEST(ExpertRows, CudaMergesAsCpu) {
  const Device cuda = cuda_test_runtime().device();
  for (const int64_t senders : {1, 3, 40})
    for (const int64_t experts : {1, 5, 100}) {
      SCOPED_TRACE(::testing::Message() << senders << " senders, " << experts << " experts");
      const Tensor counts = rand_ints({senders, experts}, 6, Seed{1}, DType::i32);
      int64_t room = 9;
      for (const int64_t n : ints(counts)) room += n;
      const auto merge = [&](const Tensor& of, Device device) {
        std::vector<Tensor> out{zeros({room}, DType::i32, device),
                                zeros({room}, DType::i32, device),
                                zeros({experts + 1}, DType::i32, device)};
        kernels::merge_by_expert(of, 0, out[0], out[1], out[2]);
        return out;
      };
      const auto want = merge(counts, test_device()), got = merge(to_device(counts, cuda), cuda);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(ints(home(got[i])), ints(want[i])) << i;
    }
}

PHX_CUDA_TEST(ExpertRows, CudaGathersAndSumsAsCpu) {
  const Device cuda = cuda_test_runtime().device();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t h : {1, 7, 64, 1000})
      for (const int64_t k : {1, 2, 11}) {
        SCOPED_TRACE(::testing::Message() << name(dtype) << ", h " << h << ", k " << k);
        const int64_t t = 67, room = t * k + 3;
        const ExpertOrder order = order_by_expert(uneven_choices(t, k, 5), 0, 5, room);
        const Tensor choice_of = to_device(order.choice_of, cuda);
        const Tensor row_of = to_device(order.row_of, cuda);
        const Tensor x = randn({t, h}, Seed{1}, dtype), y = randn({room, h}, Seed{2}, dtype);
        Tensor want = full({room, h}, kPoison, dtype, test_device());
        Tensor got = full({room, h}, kPoison, dtype, cuda);
        kernels::gather_rows(x, order.choice_of, k, want);
        kernels::gather_rows(to_device(x, cuda), choice_of, k, got);
        expect_same_rows(got, want, 0);
        for (const float beta : {0.f, 1.f}) {
          Tensor sum = full({t, h}, kPoison, dtype, test_device());
          Tensor cuda_sum = full({t, h}, kPoison, dtype, cuda);
          kernels::sum_rows(y, order.row_of, {sum, beta});
          kernels::sum_rows(to_device(y, cuda), row_of, {cuda_sum, beta});
          expect_same_rows(cuda_sum, sum, 0);  // the same additions in the same order
        }
      }
}

PHX_CUDA_TEST(ExpertRows, CudaActivatesAsCpu) {
  using kernels::Activation;
  const Device cuda = cuda_test_runtime().device();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Activation kind : {Activation::silu, Activation::gelu, Activation::gelu_tanh,
                                  Activation::quick_gelu, Activation::relu_squared})
      for (const bool gated : {true, false})
        for (const int64_t f : {3, 40, 768}) {
          SCOPED_TRACE(::testing::Message() << name(dtype) << ", activation " << int(kind)
                                            << (gated ? " gated" : "") << ", f " << f);
          const int64_t used = 37, room = 50, width = gated ? 2 * f : f;
          const double tolerance = dtype == DType::f32 ? 2e-6 : dtype == DType::bf16 ? 8e-3 : 1e-3;
          const auto run = [&](Device device) {
            const Tensor x = rows_of(used, {room, width}, 1, dtype, device);
            const Tensor probs = rows_of(used, {room}, 2, DType::f32, device);
            const Tensor dy = rows_of(used, {room, f}, 3, dtype, device);
            const Tensor offsets =
                from_ints(std::vector<int64_t>{0, 5, 5, used}, {4}, DType::i32, device);
            std::vector<Tensor> out{full({room, f}, kPoison, dtype, device),
                                    full({room, width}, kPoison, dtype, device),
                                    full({room, 1}, kPoison, DType::f32, device)};
            kernels::activate_weighted(x, probs, offsets, {kind, gated}, out[0]);
            kernels::activate_weighted_backward(x, probs, offsets, dy, {kind, gated}, out[1],
                                                out[2]);
            return out;
          };
          const auto got = run(cuda), want = run(test_device());
          expect_same_rows(got[0], want[0], tolerance);
          expect_same_rows(got[1], want[1], tolerance);
          expect_same_rows(got[2], want[2], 1e-5);
        }
}

#ifdef PHX_HAVE_CUDA

struct GroupedCase {
  const char* title;
  std::vector<int64_t> counts;  // rows of each expert
  int64_t extra;                // room behind the last row
  int64_t n, k;
};

// What the Hopper kernels take: rows of 16 bytes.
std::vector<GroupedCase> grouped_cases() {
  return {{"one tile", {128}, 0, 256, 64},
          {"two steps", {128}, 0, 256, 128},
          {"one step of part of a tile", {16}, 0, 8, 16},
          {"many steps", {128}, 0, 256, 1024},
          {"many tiles", {384}, 0, 768, 192},
          {"two even experts", {128, 128}, 0, 256, 256},
          {"odd sizes", {5, 130, 64, 1, 257, 128}, 3, 264, 72},
          {"experts without rows", {0, 5, 0, 0, 300, 77, 0}, 50, 136, 200},
          {"all rows in one expert", {0, 0, 1000, 0}, 0, 520, 320},
          {"no rows at all", {0, 0, 0}, 40, 64, 64},
          {"narrow", {70, 3, 200}, 60, 24, 40},
          {"more tiles than multiprocessors", {700, 1300, 20, 900, 0, 1500}, 11, 1032, 392},
          {"many experts", std::vector<int64_t>(200, 9), 1, 72, 88}};
}

// Sizes that only the plain kernel takes.
std::vector<GroupedCase> odd_cases() {
  return {{"odd", {3, 0, 70, 129}, 2, 33, 21}, {"tiny", {1, 2}, 1, 1, 1}};
}

Tensor offsets_of(const GroupedCase& c, Device device) {
  std::vector<int64_t> at{0};
  for (const int64_t n : c.counts) at.push_back(at.back() + n);
  return from_ints(at, {int64_t(at.size())}, DType::i32, device);
}

int64_t used_rows(const GroupedCase& c) {
  int64_t sum = 0;
  for (const int64_t n : c.counts) sum += n;
  return sum;
}

using RowsProduct = std::function<void(const Tensor&, const Tensor&, const Tensor&, bool, Sink)>;
using WeightProduct = std::function<void(const Tensor&, const Tensor&, const Tensor&, Sink)>;

// c, behind which rows are poisoned before and afterwards.
Tensor rows_product(const GroupedCase& c, DType dtype, bool transposed, float beta, Device device,
                    const RowsProduct& product) {
  const int64_t used = used_rows(c), room = used + c.extra, e = int64_t(c.counts.size());
  const int64_t in = transposed ? c.n : c.k, out = transposed ? c.k : c.n;
  const Tensor a = rows_of(used, {room, in}, 1, dtype, device);
  const Tensor w = randn({e, c.n, c.k}, Seed{2}, dtype, device);
  Tensor result = full({room, out}, kPoison, dtype, device);
  product(a, w, offsets_of(c, device), transposed, {result, beta});
  return result;
}

Tensor weight_product(const GroupedCase& c, DType dtype, DType out, float beta, Device device,
                      const WeightProduct& product) {
  const int64_t used = used_rows(c), room = used + c.extra, e = int64_t(c.counts.size());
  const Tensor dy = rows_of(used, {room, c.n}, 1, dtype, device);
  const Tensor x = rows_of(used, {room, c.k}, 2, dtype, device);
  Tensor result = full({e, c.n, c.k}, kPoison, out, device);
  product(dy, x, offsets_of(c, device), {result, beta});
  return result;
}

double tolerance_of(DType dtype) {
  return dtype == DType::f32 ? 1e-5 : dtype == DType::bf16 ? 8e-3 : 1e-3;
}

PHX_CUDA_TEST(ExpertRows, CudaPlainGroupedProductsMatchCpu) {
  const Device cuda = cuda_test_runtime().device();
  const RowsProduct cpu_rows = [](const Tensor& a, const Tensor& w, const Tensor& offsets,
                                  bool transposed, const Sink& c) {
    kernels::grouped_matmul(a, w, offsets, transposed, c);
  };
  const WeightProduct cpu_weights = [](const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                       const Sink& dw) {
    kernels::grouped_weight_product(dy, x, offsets, dw);
  };
  std::vector<GroupedCase> cases = odd_cases();
  for (const size_t i : {6, 7, 9, 10}) cases.push_back(grouped_cases()[i]);
  for (const GroupedCase& c : cases)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const float beta : {0.f, 1.f}) {
        SCOPED_TRACE(::testing::Message() << c.title << ", " << name(dtype) << ", beta " << beta);
        for (const bool transposed : {false, true}) {
          SCOPED_TRACE(transposed ? "transposed" : "forward");
          expect_same_rows(
              rows_product(c, dtype, transposed, beta, cuda, kernels::cuda::plain_grouped_matmul),
              rows_product(c, dtype, transposed, beta, test_device(), cpu_rows),
              tolerance_of(dtype));
        }
        for (const DType out : {DType::f32, dtype}) {
          SCOPED_TRACE(::testing::Message() << "weights in " << name(out));
          expect_same_rows(weight_product(c, dtype, out, beta, cuda,
                                          kernels::cuda::plain_grouped_weight_product),
                           weight_product(c, dtype, out, beta, test_device(), cpu_weights),
                           tolerance_of(out));
        }
      }
}

bool has_hopper() {
  Tensor x = zeros({8, 8}, DType::bf16, cuda_test_runtime().device());
  Tensor offsets =
      from_ints(std::vector<int64_t>{0, 8}, {2}, DType::i32, cuda_test_runtime().device());
  return kernels::cuda::hopper_grouped_matmul(x, x.reshape({1, 8, 8}), offsets, false,
                                              {empty_like(x)});
}

// One kind of product after the other, each with all its cases: a failing run shows them apart.
void expect_hopper_rows_match(bool transposed, const kernels::cuda::HopperTuning& tuning = {}) {
  if (!has_hopper()) GTEST_SKIP() << "no Hopper GPU, or not compiled for 90a";
  const Device cuda = cuda_test_runtime().device();
  for (const GroupedCase& c : grouped_cases())
    for (const DType dtype : {DType::bf16, DType::f16})
      for (const float beta : {0.f, 1.f}) {
        SCOPED_TRACE(::testing::Message() << c.title << ", " << name(dtype) << ", beta " << beta);
        const RowsProduct hopper = [&](const Tensor& a, const Tensor& w, const Tensor& offsets,
                                       bool across, const Sink& out) {
          EXPECT_TRUE(kernels::cuda::hopper_grouped_matmul(a, w, offsets, across, out, tuning));
        };
        expect_same_rows(
            rows_product(c, dtype, transposed, beta, cuda, hopper),
            rows_product(c, dtype, transposed, beta, cuda, kernels::cuda::plain_grouped_matmul),
            tolerance_of(dtype));
      }
}

PHX_CUDA_TEST(ExpertRows, CudaHopperForwardMatchesPlain) { expect_hopper_rows_match(false); }
PHX_CUDA_TEST(ExpertRows, CudaHopperTransposedMatchesPlain) { expect_hopper_rows_match(true); }

void expect_hopper_weights_match(const kernels::cuda::HopperTuning& tuning = {}) {
  if (!has_hopper()) GTEST_SKIP() << "no Hopper GPU, or not compiled for 90a";
  const Device cuda = cuda_test_runtime().device();
  for (const GroupedCase& c : grouped_cases())
    for (const DType dtype : {DType::bf16, DType::f16})
      for (const DType out : {DType::f32, dtype})
        for (const float beta : {0.f, 1.f}) {
          SCOPED_TRACE(::testing::Message() << c.title << ", " << name(dtype) << " to " << name(out)
                                            << ", beta " << beta);
          const WeightProduct hopper = [&](const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                           const Sink& dw) {
            EXPECT_TRUE(kernels::cuda::hopper_grouped_weight_product(dy, x, offsets, dw, tuning));
          };
          expect_same_rows(weight_product(c, dtype, out, beta, cuda, hopper),
                           weight_product(c, dtype, out, beta, cuda,
                                          kernels::cuda::plain_grouped_weight_product),
                           tolerance_of(out));
        }
}

PHX_CUDA_TEST(ExpertRows, CudaHopperWeightProductMatchesPlain) { expect_hopper_weights_match(); }

// The other ways to walk over the tiles.
PHX_CUDA_TEST(ExpertRows, CudaHopperWithoutALeadMatchesPlain) {
  expect_hopper_rows_match(false, {.lead = 0, .block_m = 3});
  expect_hopper_weights_match({.lead = 0, .block_m = 3});
}
PHX_CUDA_TEST(ExpertRows, CudaHopperClustersForwardMatchPlain) {
  expect_hopper_rows_match(false, {.cluster = 2});
}
PHX_CUDA_TEST(ExpertRows, CudaHopperClustersTransposedMatchPlain) {
  expect_hopper_rows_match(true, {.cluster = 2});
}
PHX_CUDA_TEST(ExpertRows, CudaHopperClustersWeightProductMatchesPlain) {
  expect_hopper_weights_match({.cluster = 2});
}

PHX_CUDA_TEST(ExpertRows, CudaGroupedProductsAreTheSameEveryTime) {
  const Device cuda = cuda_test_runtime().device();
  const GroupedCase c = grouped_cases()[11];
  const auto once = [&] {
    return weight_product(
        c, DType::bf16, DType::f32, 1.f, cuda,
        [](const Tensor& dy, const Tensor& x, const Tensor& offsets, const Sink& dw) {
          kernels::grouped_weight_product(dy, x, offsets, dw);
        });
  };
  const Tensor first = once();
  for (int i = 0; i < 5; ++i) expect_same_rows(once(), first, 0);
}

#endif  // PHX_HAVE_CUDA

PHX_CUDA_TEST(ExpertRows, CudaExpertsMatchCpu) {
  const int64_t t = 150, h = 72, f = 80, e = 5, k = 3;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const bool gated : {true, false}) {
      SCOPED_TRACE(::testing::Message() << name(dtype) << (gated ? ", gated" : ""));
      const Tensor indices = uneven_choices(t, k, e);
      const auto small = [&](const Shape& shape, uint64_t seed) {  // gradients stay in f16's range
        std::vector<double> v = to_values(randn(shape, Seed{seed}));
        for (double& x : v) x *= 0.2;
        return from_values(v, shape, dtype, test_device());
      };
      const std::vector<Tensor> in{randn({t, h}, Seed{1}, dtype),
                                   randn({t, k}, Seed{2}, acc_dtype(dtype)),
                                   small({e * (gated ? 2 * f : f), h}, 3), small({e * h, f}, 4)};
      expect_cuda_matches_cpu(
          [&](std::span<const Tensor> x) {
            const ExpertOrder order =
                order_by_expert(to_device(indices, x[0].device()), 0, e, t * k);
            return experts(x, order, gated);
          },
          in,
          dtype == DType::f32    ? 1e-5
          : dtype == DType::bf16 ? 2e-2
                                 : 3e-3);
    }
}

}  // namespace
}  // namespace phx
