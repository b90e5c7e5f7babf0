#include "phalanx/ops/router.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/kernels/elementwise.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Tensor values(std::vector<double> v, const Shape& shape) {
  return from_values(v, shape, DType::f64, test_device());
}

std::vector<int64_t> ints(const Tensor& x) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < x.numel(); ++i) out.push_back(x.data<int32_t>()[i]);
  return out;
}

Routing plain(const Tensor& logits, const RouterOptions& options, const Tensor& bias = {}) {
  return route(logits, bias, options, {}, {});
}

TEST(Router, SoftmaxAfterTheChoiceSharesOutOneAmongTheChosen) {
  const Tensor logits =
      values({std::log(1.0), std::log(3.0), std::log(2.0), std::log(6.0)}, {1, 4});
  const Routing routing = plain(logits, {.topk = 2});
  EXPECT_EQ(ints(routing.indices), (std::vector<int64_t>{3, 1}));
  EXPECT_NEAR(to_values(routing.probs)[0], 6.0 / 9, 1e-15);
  EXPECT_NEAR(to_values(routing.probs)[1], 3.0 / 9, 1e-15);
}

TEST(Router, SoftmaxBeforeTheChoiceKeepsTheSharesOfAll) {
  const Tensor logits =
      values({std::log(1.0), std::log(3.0), std::log(2.0), std::log(6.0)}, {1, 4});
  const Routing routing =
      plain(logits, {.topk = 2, .scores = RouterScores::softmax_before, .scaling = 2});
  EXPECT_NEAR(to_values(routing.probs)[0], 2 * 6.0 / 12, 1e-15);
  EXPECT_NEAR(to_values(routing.probs)[1], 2 * 3.0 / 12, 1e-15);
}

TEST(Router, ABiasDecidesTheChoiceAndNotTheWeight) {
  const Tensor logits = values({0, 1, 2}, {1, 3});
  const Routing routing =
      plain(logits, {.topk = 1, .scores = RouterScores::sigmoid}, values({5, 0, 0}, {3}));
  EXPECT_EQ(ints(routing.indices), (std::vector<int64_t>{0}));
  EXPECT_NEAR(to_values(routing.probs)[0], 0.5, 1e-15);
}

TEST(Router, EqualScoresGoToTheLowerExpert) {
  const Routing routing = plain(values({1, 2, 2, 2}, {1, 4}), {.topk = 2});
  EXPECT_EQ(ints(routing.indices), (std::vector<int64_t>{1, 2}));
}

TEST(Router, ExpertsOutsideOfTheBestGroupsAreNotChosen) {
  // Two groups of three. The best expert is in the first, but the best two together are in the
  // second (by sigmoid: 0.88 + 0.5 against 0.87 + 0.86).
  const Tensor logits = values({2.0, 0.0, -5, 1.9, 1.8, -5}, {1, 6});
  const Routing routing =
      plain(logits, {.topk = 2, .scores = RouterScores::sigmoid, .groups = 2, .group_topk = 1});
  EXPECT_EQ(ints(routing.indices), (std::vector<int64_t>{3, 4}));
}

TEST(Router, GradientsMatchFiniteDifferences) {
  for (const RouterScores scores :
       {RouterScores::softmax_after, RouterScores::softmax_before, RouterScores::sigmoid})
    for (const int64_t k : {1, 3}) {
      expect_gradients_match(
          [&](std::span<const Tensor> in) {
            return plain(router_logits(in[0], in[1]), {.topk = k, .scores = scores, .scaling = 1.5})
                .probs;
          },
          {randn({7, 4}, Seed{1}), randn({6, 4}, Seed{2})});  // x [t, h], w [e, h]
    }
}

// The four losses of some logits, [4].
std::vector<double> costs_of(const Tensor& logits, const RouterOptions& options,
                             const BalanceLosses& losses, const Tensor& loads) {
  const Tensor costs = zeros({4}, DType::f64, test_device());
  route(logits, {}, options, losses,
        {.samples = 2, .scale = values({1}, {1}), .loads = loads, .costs = costs});
  return to_values(costs);
}

TEST(Router, LossesOfTheBalanceAreMeansOverTokens) {
  // Four tokens of two samples, all alike: experts 0 and 1 with logits 0, the others far away.
  std::vector<double> l;
  for (int i = 0; i < 4; ++i) l.insert(l.end(), {0.0, 0.0, -1000.0, -1000.0});
  const RouterOptions options{.topk = 2};
  const auto costs =
      costs_of(values(l, {4, 4}), options, {.batch = 1, .sample = 1, .past = 1, .z = 1},
               values({0.5, 0.25, 0.25, 0}, {4}));
  EXPECT_NEAR(costs[0], 2.0, 1e-12);  // E / (k T^2) sum n P = 4 / (2 16) (4 2 + 4 2)
  EXPECT_NEAR(costs[1], 2.0, 1e-12);  // the same in every sample
  EXPECT_NEAR(costs[2], 4 * (0.5 * 0.5 + 0.25 * 0.5), 1e-12);  // E sum f mean P
  EXPECT_NEAR(costs[3], std::log(2.0) * std::log(2.0), 1e-12);
}

TEST(Router, GradientsOfTheLossesMatchFiniteDifferences) {
  const Tensor loads = values({0.1, 0.2, 0.3, 0.15, 0.25}, {5});
  const BalanceLosses all{.batch = 0.7, .sample = 0.4, .past = 0.3, .z = 0.2};
  for (const RouterScores scores : {RouterScores::softmax_after, RouterScores::sigmoid}) {
    const RouterOptions options{.topk = 2, .scores = scores};
    const std::vector<double> at = to_values(randn({6, 5}, Seed{3}));
    const auto total = [&](const std::vector<double>& l) {
      double sum = 0;
      for (const double cost : costs_of(values(l, {6, 5}), options, all, loads)) sum += cost;
      return sum;
    };
    // The weights get no gradient: what is left is that of the losses, times the scale.
    const auto f = [&](std::span<const Tensor> in) {
      const Routing routing =
          route(in[0], {}, options, all,
                {.samples = 2, .scale = values({3}, {1}), .loads = loads, .costs = {}});
      Tensor nothing = zeros(routing.probs.shape(), DType::f64, test_device());
      return with_backward(nothing, {routing.probs}, [](const Tensor& dy, GradOut& grad) {
        kernels::scale(dy, 0.0, grad.add(0));
      });
    };
    const Tensor logits = values(at, {6, 5});
    const auto slopes = to_values(gradients_of(f, std::span(&logits, 1)).inputs[0]);
    for (size_t i = 0; i < at.size(); ++i) {
      auto up = at, down = at;
      const double step = 1e-5;
      up[i] += step;
      down[i] -= step;
      EXPECT_NEAR(slopes[i], 3 * (total(up) - total(down)) / (2 * step), 1e-8) << i;
    }
  }
}

TEST(Router, AnExpertKeepsTheLargestWeightsOrTheFirstTokens) {
  Tensor indices = from_ints(std::vector<int64_t>{0, 0, 1, 0}, {4, 1}, DType::i32, test_device());
  const Routing all{.indices = indices, .probs = values({0.2, 0.9, 0.5, 0.9}, {4, 1})};
  const Routing best = within_capacity(all, {.experts = 2, .rows = 2}, nullptr);
  EXPECT_EQ(ints(best.indices), (std::vector<int64_t>{-1, 0, 1, 0}));
  EXPECT_EQ(to_values(best.probs), (std::vector<double>{0, 0.9, 0.5, 0.9}));
  const Routing one = within_capacity(all, {.experts = 2, .rows = 1}, nullptr);
  EXPECT_EQ(ints(one.indices), (std::vector<int64_t>{-1, 0, 1, -1})) << "equal: the earlier token";
  const Routing first =
      within_capacity(all, {.experts = 2, .rows = 2, .by_weight = false}, nullptr);
  EXPECT_EQ(ints(first.indices), (std::vector<int64_t>{0, 0, 1, -1}));
}

TEST(Router, DroppedChoicesHaveNoGradient) {
  expect_gradients_match(
      [&](std::span<const Tensor> in) {
        return within_capacity(plain(in[0], {.topk = 2}), {.experts = 3, .rows = 3}, nullptr).probs;
      },
      {randn({6, 3}, Seed{5})});
}

TEST(Router, EvenChoicesAreSpreadOverAllExperts) {
  Tensor indices = zeros({4, 3}, DType::i32, test_device());
  kernels::route_evenly(/*first_token=*/2, /*experts=*/4, indices);
  EXPECT_EQ(ints(indices), (std::vector<int64_t>{2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
}

TEST(Router, AllocatesOnMetaAsOnCpu) {
  expect_meta_allocates_like_cpu([](Device device) {
    const Tensor x = randn({6, 4}, Seed{1}, DType::f32, device);
    const Tensor w = randn({5, 4}, Seed{2}, DType::f32, device);
    const Routing routing = plain(router_logits(x, w), {.topk = 2});
    within_capacity(routing, {.experts = 5, .rows = 2}, nullptr);
  });
}

TEST(Router, RefusesMoreChoicesThanExperts) {
  const std::string error = error_of([] { plain(values({1, 2}, {1, 2}), {.topk = 3}); });
  EXPECT_NE(error.find("not 3 of 2"), std::string::npos) << error;
}

}  // namespace
}  // namespace phx
