#include "phalanx/ops/router.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/comm/thread_world.h"
#include "phalanx/core/segment.h"
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

// Of DeepSeek-V2: the best expert decides about its group, and both of a token come from it.
TEST(Router, AGroupIsRankedByAsManyOfItsScoresAsAreAskedFor) {
  const Tensor logits = values({2.0, 0.0, -5, 1.9, 1.8, -5}, {1, 6});
  RouterOptions options{.topk = 2, .groups = 2, .group_topk = 1};
  for (const RouterScores scores : {RouterScores::softmax_before, RouterScores::sigmoid}) {
    options.scores = scores;
    const auto chosen = [&](int64_t best) {
      options.group_best = best;
      return ints(plain(logits, options).indices);
    };
    EXPECT_EQ(chosen(1), (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(chosen(2), (std::vector<int64_t>{3, 4}));
    EXPECT_EQ(chosen(0), chosen(2)) << "topk / group_topk";
  }
  // Three of a token's experts from two groups, which 3 / 2 scores could not rank.
  const Tensor three = values({3, -9, -9, 2, 2, 1, 0, 0, 0}, {1, 9});
  EXPECT_EQ(ints(plain(three, {.topk = 3, .groups = 3, .group_topk = 2, .group_best = 1}).indices),
            (std::vector<int64_t>{0, 3, 4}));
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

// How many tokens have each expert among their best scores, then the four losses of some logits and
// the entropy: [e + 5].
std::vector<double> balance_of(const Tensor& logits, const RouterOptions& options,
                               const BalanceLosses& losses, const Tensor& loads) {
  const Tensor tally = zeros({logits.dim(1) + kernels::kBalanceCosts}, DType::f64, test_device());
  route(logits, {}, options, losses,
        {.samples = 2, .scale = values({1}, {1}), .loads = loads, .tally = tally});
  return to_values(tally);
}

std::vector<double> costs_of(const Tensor& logits, const RouterOptions& options,
                             const BalanceLosses& losses, const Tensor& loads) {
  const std::vector<double> balance = balance_of(logits, options, losses, loads);
  return {balance.begin() + logits.dim(1), balance.end()};
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
  EXPECT_NEAR(costs[4], std::log(2.0), 1e-12);  // of two experts that are alike
}

TEST(Router, LoadsOfTheLastStepCountByTheirSharesAndWithoutOnesTheMicroBatchsOwnDo) {
  std::vector<double> l;
  for (int i = 0; i < 4; ++i) l.insert(l.end(), {0.0, 0.0, -1000.0, -1000.0});
  const auto past = [&](const Tensor& loads) {
    return costs_of(values(l, {4, 4}), {.topk = 2}, {.past = 1}, loads)[2];
  };
  EXPECT_NEAR(past(values({20, 10, 10, 0}, {4})), 4 * (0.5 * 0.5 + 0.25 * 0.5), 1e-12);
  const double own = 4 * (0.5 * 0.5 + 0.5 * 0.5);  // both experts have half of the choices
  EXPECT_NEAR(past(values({0, 0, 0, 0}, {4})), own, 1e-12);
  EXPECT_NEAR(past({}), own, 1e-12);
  const std::vector<double> balance = balance_of(values(l, {4, 4}), {.topk = 2}, {.past = 1}, {});
  EXPECT_EQ(std::vector<double>(balance.begin(), balance.begin() + 4),
            (std::vector<double>{4, 4, 0, 0}));
}

TEST(Router, ChoicesAreCountedAndDroppedOnesApart) {
  const Tensor indices =
      from_ints(std::vector<int64_t>{2, 0, -1, 2, 2, 1}, {3, 2}, DType::i32, test_device());
  const Tensor tally = zeros({3 + 3}, DType::f64, test_device());
  kernels::count_choices(indices, 3, tally);
  kernels::count_choices(indices, 3, tally);
  EXPECT_EQ(to_values(tally), (std::vector<double>{2, 2, 6, /*dropped*/ 2, /*tokens*/ 6,
                                                   /*calls*/ 2}));
}

TEST(Router, AStepMovesTheBiasTowardsEvenLoadsUnlessItIsSkipped) {
  // Four experts; chosen [4], dropped, tokens, calls, scored [4], costs [5].
  const kernels::RouterTally tally{
      .row = values({7, 1, 4, 4, 0, 8, 1, 5, 3, 4, 4, 0, 0, 0, 0, 0}, {16}), .experts = 4};
  Tensor bias = values({0.5, 0.5, 0.5, 0.5}, {4}), loads = values({1, 1, 1, 1}, {4});
  kernels::end_router_step(tally, values({1}, {1}), 0.25, bias, loads);
  EXPECT_EQ(to_values(bias), (std::vector<double>{0.5, 0.5, 0.5, 0.5})) << "a step was skipped";
  EXPECT_EQ(to_values(loads), (std::vector<double>{1, 1, 1, 1}));
  kernels::end_router_step(tally, values({0}, {1}), 0.25, bias, loads);
  EXPECT_EQ(to_values(bias), (std::vector<double>{0.25, 0.75, 0.5, 0.5}));
  EXPECT_EQ(to_values(loads), (std::vector<double>{5, 3, 4, 4}));
}

TEST(Router, LogitsThatAreNoNumbersComeLast) {
  const double nan = std::nan("");
  const auto chosen = [&](const RouterOptions& options) {
    return ints(plain(values({nan, 1, nan, 3, 2, nan, 0, nan}, {1, 8}), options).indices);
  };
  EXPECT_EQ(chosen({.topk = 4}), (std::vector<int64_t>{3, 4, 1, 6}));
  EXPECT_EQ(chosen({.topk = 2, .scores = RouterScores::sigmoid, .groups = 4, .group_topk = 2}),
            (std::vector<int64_t>{3, 4}));
}

TEST(Router, WideGradientsOfLogitsAreNotRoundedToTheInputsType) {
  const auto in = [](std::vector<double> v, const Shape& shape, DType dtype) {
    return from_values(v, shape, dtype, test_device());
  };
  // Two experts with the same weight: dx is the sum of the logits' gradients.
  const Tensor x = in({1}, {1, 1}, DType::bf16), w = in({1, 1}, {2, 1}, DType::bf16);
  const auto dx = [&](RouterGradients gradients) {
    Segment segment(std::vector<Tensor>{x, w}, [&](std::span<const Tensor> inputs) {
      return std::vector<Tensor>{router_logits(inputs[0], inputs[1], gradients)};
    });
    const Tensor dy = in({1 + 0x1p-12, -1}, {1, 2}, DType::f32);  // 1 + 2^-12 is no bf16
    return to_values(segment.backward(std::vector<Tensor>{dy})[0])[0];
  };
  EXPECT_EQ(dx(RouterGradients::wide), 0x1p-12);
  EXPECT_EQ(dx(RouterGradients::as_input), 0);
}

TEST(Router, GradientsOfTheLossesMatchFiniteDifferences) {
  const Tensor loads = values({0.1, 0.2, 0.3, 0.15, 0.25}, {5});
  const BalanceLosses all{.batch = 0.7, .sample = 0.4, .past = 0.3, .z = 0.2};
  for (const RouterScores scores : {RouterScores::softmax_after, RouterScores::sigmoid}) {
    const RouterOptions options{.topk = 2, .scores = scores};
    const std::vector<double> at = to_values(randn({6, 5}, Seed{3}));
    const auto total = [&](const std::vector<double>& l) {
      double sum = 0;
      const std::vector<double> costs = costs_of(values(l, {6, 5}), options, all, loads);
      for (size_t i = 0; i < 4; ++i) sum += costs[i];
      return sum;
    };
    // The weights get no gradient: what is left is that of the losses, times the scale.
    const auto f = [&](std::span<const Tensor> in) {
      const Routing routing =
          route(in[0], {}, options, all, {.samples = 2, .scale = values({3}, {1}), .loads = loads});
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

// Two ranks of two tokens each, all for expert 0.
std::vector<std::vector<int64_t>> kept_of_two_ranks(const std::vector<double>& weights,
                                                    bool by_weight) {
  std::vector<std::vector<int64_t>> kept(2);
  run_thread_ranks(2, {}, [&](World& world) {
    Runtime runtime;
    const auto group = world.group({0, 1}, "tp");
    const auto rank = size_t(world.rank());
    const Tensor probs = from_values(
        std::vector(weights.begin() + 2 * int(rank), weights.begin() + 2 * int(rank) + 2), {2, 1},
        DType::f64, runtime.device());
    const Routing own{.indices = zeros({2, 1}, DType::i32, runtime.device()), .probs = probs};
    kept[rank] =
        ints(within_capacity(own, {.experts = 2, .rows = 3, .by_weight = by_weight}, group.get())
                 .indices);
  });
  return kept;
}

TEST(Router, AnExpertKeepsTheSameTokensOnHoweverManyRanksTheyAre) {
  using Kept = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(kept_of_two_ranks({0.5, 0.5, 0.5, 0.5}, true), (Kept{{0, 0}, {0, -1}}))
      << "equal weights: the tokens of the first rank are the earlier ones";
  EXPECT_EQ(kept_of_two_ranks({0.4, 0.5, 0.6, 0.5}, true), (Kept{{-1, 0}, {0, 0}}));
  EXPECT_EQ(kept_of_two_ranks({0.4, 0.5, 0.6, 0.5}, false), (Kept{{0, 0}, {0, -1}}));
}

TEST(Router, AnExpertDropsByTheOrderOfTheSequenceWhereRanksHaveAnother) {
  // Tokens 0, 3, 1, 2 of a sequence, all for expert 0.
  const auto moved = [](std::vector<int64_t> from) {
    return [from](const Tensor& x) {
      Tensor y = empty_like(x);
      for (int64_t row = 0; row < 4; ++row) {
        Tensor to = y.rows(row, 1);
        copy(x.rows(from[size_t(row)], 1), to);
      }
      return y;
    };
  };
  const Routing all{.indices = zeros({4, 1}, DType::i32, test_device()),
                    .probs = values({0.5, 0.5, 0.5, 0.5}, {4, 1})};
  Capacity capacity{.experts = 2, .rows = 3, .by_weight = false};
  EXPECT_EQ(ints(within_capacity(all, capacity, nullptr).indices),
            (std::vector<int64_t>{0, 0, 0, -1}));
  capacity.in_sequence = moved({0, 2, 3, 1});
  capacity.by_rank = moved({0, 3, 1, 2});
  EXPECT_EQ(ints(within_capacity(all, capacity, nullptr).indices),
            (std::vector<int64_t>{0, -1, 0, 0}));
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

// Normals rounded to sixteenths: many are equal, and those that are not differ by far more than the
// devices' exponentials do.
Tensor coarse(const Shape& shape, uint64_t seed, Device device = test_device()) {
  std::vector<double> v = to_values(randn(shape, Seed{seed}));
  for (double& x : v) x = std::round(x * 16) / 16;
  return from_values(v, shape, DType::f32, device);
}

// On the host, whatever device it is on.
Tensor whole_numbers(const Shape& shape, int64_t below, Seed seed, DType dtype, Device device) {
  return from_values(to_values(rand_ints(shape, below, seed)), shape, dtype, device);
}

Tensor home(const Tensor& x) { return to_device(x, test_device()); }

struct RouterCase {
  int64_t t, e, k, groups = 0, group_topk = 0, group_best = 0;
};

PHX_CUDA_TEST(Router, CudaChoosesAndWeighsAsCpu) {
  const Device cuda = cuda_test_runtime().device();
  for (const RouterCase& c :
       {RouterCase{77, 5, 1}, RouterCase{77, 5, 5}, RouterCase{77, 33, 8}, RouterCase{131, 64, 8},
        RouterCase{77, 100, 3}, RouterCase{77, 256, 8}, RouterCase{77, 500, 40},
        RouterCase{77, 1000, 33}, RouterCase{77, 1024, 64}, RouterCase{77, 256, 8, 8, 4},
        RouterCase{77, 60, 6, 6, 3}, RouterCase{77, 1024, 8, 64, 2},
        RouterCase{77, 160, 6, 8, 3, 1}, RouterCase{77, 256, 8, 8, 3, 2}})
    for (const RouterScores scores :
         {RouterScores::softmax_after, RouterScores::softmax_before, RouterScores::sigmoid})
      for (const bool biased : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << c.k << " of " << c.e << " experts, " << c.groups << " groups, scores "
                     << int(scores) << (biased ? ", bias" : ""));
        const RouterOptions options{.topk = c.k,
                                    .scores = scores,
                                    .groups = c.groups,
                                    .group_topk = c.group_topk,
                                    .group_best = c.group_best,
                                    .scaling = 1.5};
        const Tensor logits = coarse({c.t, c.e}, 1), bias = biased ? coarse({c.e}, 2) : Tensor();
        const Routing want = plain(logits, options, bias);
        const Routing got =
            plain(to_device(logits, cuda), options, biased ? to_device(bias, cuda) : Tensor());
        const auto a = ints(home(got.indices)), b = ints(want.indices);
        for (size_t i = 0; i < a.size(); ++i)
          ASSERT_EQ(a[i], b[i]) << "token " << i / size_t(c.k) << ", choice " << i % size_t(c.k);
        expect_close(home(got.probs), want.probs, 2e-6);
        const Routing again = route_to(to_device(logits, cuda), got.indices, options);
        expect_close(home(again.probs), want.probs, 2e-6);
      }
}

PHX_CUDA_TEST(Router, CudaGradientsAndLossesMatchCpu) {
  const BalanceLosses all{.batch = 0.7, .sample = 0.4, .past = 0.3, .z = 0.2};
  for (const RouterCase& c : {RouterCase{78, 5, 1}, RouterCase{78, 64, 8}, RouterCase{78, 100, 3},
                              RouterCase{6000, 256, 8}, RouterCase{78, 1000, 33}})
    for (const RouterScores scores :
         {RouterScores::softmax_after, RouterScores::softmax_before, RouterScores::sigmoid})
      for (const int64_t samples : {1, 3}) {
        SCOPED_TRACE(::testing::Message() << c.k << " of " << c.e << " experts, scores "
                                          << int(scores) << ", samples " << samples);
        std::vector<double> costs[2];  // on cuda, which comes first, and on cpu
        size_t run = 0;
        const auto f = [&](std::span<const Tensor> in) {
          const Device device = in[0].device();
          const Tensor scale = from_values(std::vector<double>{3}, {1}, DType::f32, device);
          const Tensor tally = zeros({c.e + kernels::kBalanceCosts}, DType::f64, device);
          const Routing routing =
              route(in[0], {}, {.topk = c.k, .scores = scores, .scaling = 1.5}, all,
                    {.samples = samples,
                     .scale = scale,
                     .loads = whole_numbers({c.e}, 100, Seed{3}, DType::f32, device),
                     .tally = tally});
          costs[run++] = to_values(tally);
          return routing.probs;
        };
        expect_cuda_matches_cpu(f, {coarse({c.t, c.e}, 1)}, 1e-5);
        for (size_t i = 0; i < costs[1].size(); ++i)
          EXPECT_NEAR(costs[0][i], costs[1][i], 1e-5 * std::abs(costs[1][i]))
              << "count, loss or entropy " << i;
      }
}

PHX_CUDA_TEST(Router, CudaCountsChoicesAndEndsStepsAsCpu) {
  const Device cuda = cuda_test_runtime().device();
  for (const int64_t e : {5, 64, 1000}) {
    const int64_t width = kernels::RouterTally::width(e);
    std::vector<int64_t> chosen;
    for (const double x : to_values(rand_ints({777, 6}, e + 1, Seed{1})))
      chosen.push_back(int64_t(x) - 1);  // some are dropped
    std::vector<std::vector<double>> results[2];
    for (const Device device : {cuda, test_device()}) {
      const kernels::RouterTally tally{
          .row = whole_numbers({width}, 50, Seed{2}, DType::f64, device), .experts = e};
      kernels::count_choices(from_ints(chosen, {777, 6}, DType::i32, device), e, tally.choices());
      for (const double skip : {1.0, 0.0}) {
        Tensor bias = whole_numbers({e}, 9, Seed{3}, DType::f32, device);
        Tensor loads = whole_numbers({e}, 9, Seed{4}, DType::f32, device);
        const Tensor skips = from_values(std::vector<double>{skip}, {1}, DType::f64, device);
        kernels::end_router_step(tally, skips, 0.125, bias, loads);
        auto& result = results[device == cuda ? 0 : 1];
        result.push_back(to_values(bias));
        result.push_back(to_values(loads));
        result.push_back(to_values(tally.row));
      }
    }
    EXPECT_EQ(results[0], results[1]) << e << " experts";
  }
}

PHX_CUDA_TEST(Router, CudaSumsOfTheBalanceAreTheSameEveryTime) {
  const Tensor logits = randn({5000, 60}, Seed{1}, DType::f32, cuda_test_runtime().device());
  std::vector<double> first;
  for (int i = 0; i < 5; ++i) {
    Tensor sums = zeros({kernels::balance_size(2, 60)}, DType::f32, logits.device());
    kernels::route_balance(logits, {.topk = 4}, 2, sums);
    if (i == 0) first = to_values(sums);
    EXPECT_EQ(to_values(sums), first);
  }
}

PHX_CUDA_TEST(Router, CudaKeepsWithinCapacityAsCpu) {
  const Device cuda = cuda_test_runtime().device();
  for (const int64_t t : {3, 1000})
    for (const int64_t rows : {1, 37, 100000})
      for (const bool by_weight : {true, false}) {
        SCOPED_TRACE(::testing::Message()
                     << t << " tokens, capacity " << rows << (by_weight ? ", by weight" : ""));
        const int64_t experts = 13;
        std::vector<int64_t> chosen;
        for (const double x : to_values(rand_ints({t, 5}, experts + 1, Seed{1})))
          chosen.push_back(int64_t(x) - 1);  // some are dropped already
        const Tensor indices = from_ints(chosen, {t, 5}, DType::i32, test_device());
        const Tensor probs = coarse({t, 5}, 2);  // negative ones, zeros and equal ones, too
        Tensor want = zeros({t, 5}, DType::u8, test_device()), got = zeros({t, 5}, DType::u8, cuda);
        kernels::keep_within_capacity(indices, probs, experts, rows, by_weight, want);
        const Tensor cuda_indices = to_device(indices, cuda), cuda_probs = to_device(probs, cuda);
        kernels::keep_within_capacity(cuda_indices, cuda_probs, experts, rows, by_weight, got);
        std::vector<uint8_t> a(size_t(want.numel())), b(size_t(want.numel()));
        copy_to_host(got, a.data());
        copy_to_host(want, b.data());
        EXPECT_EQ(a, b);

        const Capacity capacity{.experts = experts, .rows = rows, .by_weight = by_weight};
        const Routing dropped =
            within_capacity({.indices = cuda_indices, .probs = cuda_probs}, capacity, nullptr);
        const Routing same =
            within_capacity({.indices = indices, .probs = probs}, capacity, nullptr);
        EXPECT_EQ(ints(home(dropped.indices)), ints(same.indices));
        EXPECT_EQ(to_values(dropped.probs), to_values(same.probs));
      }
}

PHX_CUDA_TEST(Router, CudaSpreadsEvenChoicesAsCpu) {
  Tensor got = zeros({1000, 3}, DType::i32, cuda_test_runtime().device());
  Tensor want = zeros({1000, 3}, DType::i32, test_device());
  kernels::route_evenly(/*first_token=*/7, /*experts=*/11, got);
  kernels::route_evenly(/*first_token=*/7, /*experts=*/11, want);
  EXPECT_EQ(ints(home(got)), ints(want));
}

}  // namespace
}  // namespace phx
