// Experts on several ranks against the same experts on one: what every token gets, and the
// gradients of tokens and weights.
#include "phalanx/parallel/expert/dispatch.h"

#include <gtest/gtest.h>

#include <chrono>

#include "phalanx/comm/thread_world.h"
#include "phalanx/core/segment.h"
#include "phalanx/ops/expert_rows.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr int64_t kTokens = 6, kWidth = 4, kExperts = 4, kTopk = 2;  // tokens of a rank
constexpr double kClose = 1e-13;  // sums of a few dozen terms in another order

// One matrix [h, h] an expert, of which a rank of the experts' tensor parallelism has some inputs:
// outputs are summands. `w` [e * h, h] of all experts.
Tensor through_experts(const ExpertInput& input, const Tensor& w, const ExpertParallel& ranks) {
  const int64_t local = kExperts / ranks.ep, width = kWidth / ranks.tp;
  Tensor columns = empty({local * kWidth, width}, w.dtype(), w.device());
  copy_columns(w.rows(ranks.ep_rank() * local * kWidth, local * kWidth), ranks.tp_rank() * width,
               columns);
  Tensor rows = empty({input.rows.dim(0), width}, w.dtype(), w.device());
  copy_columns(input.rows.detach(), ranks.tp_rank() * width, rows);
  const Tensor part = with_backward(
      rows, {input.rows}, [=](const Tensor& dy, GradOut& grad) {  // into its columns, else 0
        Tensor& out = grad.out(0);
        set_zero(out);
        copy_columns(dy, 0, width, out, ranks.tp_rank() * width);
      });
  const Tensor weighted = scale_rows(part, input.weights);
  return grouped_linear(weighted, columns, input.offsets);  // [r, h]
}

struct Outcome {
  Tensor y, dx, dprobs;
};

Outcome run(const Tensor& x, const Tensor& indices, const Tensor& probs, const Tensor& dy,
            const Tensor& w, const ExpertParallel& ranks, const DispatchOptions& options) {
  const std::vector<Tensor> inputs = {x, probs};
  Segment segment(inputs, [&](std::span<const Tensor> in) {
    const ExpertInput input = dispatch(in[0], {.indices = indices, .probs = in[1]}, ranks, options);
    return std::vector{input.combine(through_experts(input, w, ranks))};
  });
  const Tensor y = segment.outputs()[0];
  const auto gradients = segment.backward(std::span(&dy, 1));
  return {y, gradients[0], gradients[1]};
}

// A token's experts are different ones; some choices are dropped.
Tensor some_choices(int64_t tokens, Device device) {
  std::vector<int64_t> chosen;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < kTopk; ++j)
      chosen.push_back(t % 5 == 3 && j == 1 ? -1 : (t * t + t / 2 + 2 * j + 1) % kExperts);
  return from_ints(chosen, {tokens, kTopk}, DType::i32, device);
}

struct Case {
  int ep, tp;
  Dispatcher kind;
};

class Dispatch : public ::testing::TestWithParam<Case> {};

TEST_P(Dispatch, GivesEveryTokenWhatOneRankGivesIt) {
  const auto [ep, tp, kind] = GetParam();
  const int size = ep * tp;
  run_thread_ranks(size, {}, [&, ep = ep, tp = tp, kind = kind](World& world) {
    Runtime runtime;
    const Device device = runtime.device();
    std::vector<int> everybody;
    for (int i = 0; i < size; ++i) everybody.push_back(i);
    const auto group = world.group(everybody, "tp-ep");
    const int64_t all = kTokens * size, first = kTokens * world.rank();
    const Tensor x = randn({all, kWidth}, Seed{1}, DType::f64, device);
    const Tensor probs = randn({all, kTopk}, Seed{2}, DType::f64, device);
    const Tensor dy = randn({all, kWidth}, Seed{3}, DType::f64, device);
    const Tensor w = randn({kExperts * kWidth, kWidth}, Seed{4}, DType::f64, device);
    const Tensor indices = some_choices(all, device);
    const Outcome one = run(x, indices, probs, dy, w, {}, {.experts = kExperts});
    const ExpertParallel ranks{.group = group.get(), .ep = ep, .tp = tp};
    const Outcome many =
        run(x.rows(first, kTokens), indices.rows(first, kTokens), probs.rows(first, kTokens),
            dy.rows(first, kTokens), w, ranks, {.kind = kind, .experts = kExperts});
    expect_close(many.y, one.y.rows(first, kTokens), kClose);
    expect_close(many.dx, one.dx.rows(first, kTokens), kClose);
    expect_close(many.dprobs, one.dprobs.rows(first, kTokens), kClose);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, Dispatch,
    ::testing::Values(Case{2, 1, Dispatcher::all_gather}, Case{2, 1, Dispatcher::all_to_all},
                      Case{4, 1, Dispatcher::all_to_all}, Case{1, 2, Dispatcher::all_to_all},
                      Case{2, 2, Dispatcher::all_gather}, Case{2, 2, Dispatcher::all_to_all}));

TEST(DispatchRoom, IsTheWorstCaseUnlessAFactorIsGiven) {
  run_thread_ranks(4, {}, [&](World& world) {
    const auto group = world.group({0, 1, 2, 3}, "tp-ep");
    const ExpertParallel ranks{.group = group.get(), .ep = 4, .tp = 1};
    // 4 ranks of 10 tokens; a rank has 2 of 8 experts, so a token comes twice at most.
    EXPECT_EQ(expert_rows(10, 3, ranks, {.experts = 8}), 4 * 10 * 2);
    EXPECT_EQ(expert_rows(10, 3, ranks, {.experts = 8, .room = 1.5}), 45);  // 1.5 x 10 x 3
    EXPECT_EQ(expert_rows(10, 3, ranks, {.experts = 8, .room = 9.0}), 80);
  });
}

// Six tokens of one expert each on two ranks with an expert each.
ExpertInput sent_with_room(World& world, Runtime& runtime, const std::vector<int64_t>& chosen,
                           double room) {
  const auto group = world.group({0, 1}, "tp-ep");
  const ExpertParallel ranks{.group = group.get(), .ep = 2, .tp = 1};
  const Tensor x = randn({kTokens, kWidth}, Seed{1}, DType::f64, runtime.device());
  const Tensor probs = randn({kTokens, 1}, Seed{2}, DType::f64, runtime.device());
  const Tensor indices = from_ints(chosen, {kTokens, 1}, DType::i32, runtime.device());
  return dispatch(x, {.indices = indices, .probs = probs}, ranks,
                  {.kind = Dispatcher::all_to_all, .experts = 2, .room = room});
}

TEST(DispatchRoom, MoreRowsThanThatEndAllRanksAlikeWithTheFactorThatSuffices) {
  std::vector<std::string> errors(2);
  const std::vector<int64_t> chosen = {1, 1, 1, 0, 1, 1};
  run_thread_ranks(2, {.timeout = std::chrono::seconds(20)}, [&](World& world) {
    Runtime runtime;
    errors[size_t(world.rank())] =
        error_of([&] { sent_with_room(world, runtime, chosen, /*room=*/1.5); });
  });
  EXPECT_EQ(errors[0],
            "a rank's experts, from number 1 on, got 10 rows, but there is room for 9: "
            "--moe-expert-rank-capacity-factor 1.67 would have sufficed; without the flag there is "
            "room for the worst case");
  EXPECT_EQ(errors[1], errors[0]) << "the rank that has room would wait for the other";
  run_thread_ranks(2, {}, [&](World& world) {
    Runtime runtime;
    sent_with_room(world, runtime, chosen, /*room=*/1.67);
  });
}

TEST(Dispatch, TheHostWaitsForCountsOnlyWhereRowsAreSent) {
  struct Waits {
    int ep, tp;
    Dispatcher kind;
    int64_t want;
  };
  for (const Waits& c :
       {Waits{1, 2, Dispatcher::all_to_all, 0}, Waits{2, 1, Dispatcher::all_to_all, 1},
        Waits{2, 1, Dispatcher::all_gather, 0}})
    run_thread_ranks(2, {}, [&](World& world) {
      Runtime runtime;
      const auto group = world.group({0, 1}, "tp-ep");
      const ExpertParallel ranks{.group = group.get(), .ep = c.ep, .tp = c.tp};
      const Tensor x = randn({kTokens, kWidth}, Seed{1}, DType::f64, runtime.device());
      const Tensor probs = randn({kTokens, kTopk}, Seed{2}, DType::f64, runtime.device());
      const Tensor indices = some_choices(kTokens, runtime.device());
      const int64_t before = runtime.host_waits();
      dispatch(x, {.indices = indices, .probs = probs}, ranks,
               {.kind = c.kind, .experts = kExperts});
      EXPECT_EQ(runtime.host_waits() - before, c.want) << "EP " << c.ep << " ETP " << c.tp;
    });
}

}  // namespace
}  // namespace phx
