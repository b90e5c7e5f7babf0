#include "phalanx/ops/expert_rows.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace phx
