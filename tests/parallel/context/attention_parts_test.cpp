#include "phalanx/parallel/context/attention_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::ElementsAre;

constexpr QkvHeads kHeads{.n = 2, .g = 1, .d = 3, .dv = 2};  // q 6, k 3, v 2 channels

// Rank 1 of four: eight chunks of two rows, of which it has 1 and 6.
ContextProblem problem(std::vector<Tensor> tensors, const AttentionOptions& options = {}) {
  return context_problem({.tensors = std::move(tensors), .heads = kHeads}, options, {},
                         {.ranks = 4, .rank = 1});
}
Tensor packed_heads(DType dtype = DType::f64) { return randn({4, 1, 11}, Seed{1}, dtype); }

TEST(AttentionParts, KeysAndValuesBecomeOneTensor) {
  const Tensor qkv = packed_heads();
  const HeadTensors in{.tensors = {qkv}, .heads = kHeads};
  EXPECT_EQ(in.key_channels(), 5);
  const Tensor kv = in.keys_and_values();
  const KeyViews views = key_views(kv, kHeads);
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(views.k.rows(row, 1).data<double>()[0], qkv.data<double>()[row * 11 + 6]);
    EXPECT_EQ(views.v.rows(row, 1).data<double>()[1], qkv.data<double>()[row * 11 + 10]);
  }
  const Tensor q = randn({4, 1, 6}, Seed{2}), own = randn({4, 1, 5}, Seed{3});
  EXPECT_EQ((HeadTensors{.tensors = {q, own}, .heads = kHeads}.keys_and_values().data<double>()),
            own.data<double>())
      << "where they are one already nothing is copied";
}

TEST(AttentionParts, AChunkOfQueriesSeesTheChunksBeforeItOrInItsWindow) {
  const Tensor x = packed_heads();
  EXPECT_THAT(problem({x}).seen(6), ElementsAre(0, 6));
  EXPECT_TRUE(problem({x}).sees(6, 6));
  EXPECT_FALSE(problem({x}).sees(6, 7));
  EXPECT_THAT(problem({x}, {.causal = false}).seen(1), ElementsAre(0, 7));
  EXPECT_THAT(problem({x}, {.window_left = 0}).seen(6), ElementsAre(6, 6));
  EXPECT_THAT(problem({x}, {.window_left = 1}).seen(6), ElementsAre(5, 6));
  EXPECT_THAT(problem({x}, {.window_left = 3}).seen(6), ElementsAre(4, 6));
  EXPECT_THAT(problem({x}, {.window_left = 3}).seen(1), ElementsAre(0, 1));
}

TEST(AttentionParts, AChunkStandsWhereItIsInTheSequence) {
  const ContextProblem p = problem({packed_heads()});
  const Tensor kv = p.in.keys_and_values();
  for (const size_t nth : {0, 1}) {
    const kernels::AttentionInputs in = chunk_inputs(p, nth, key_views(kv, kHeads), 4);
    EXPECT_EQ(in.place->query, nth == 0 ? 2 : 12);
    EXPECT_EQ(in.place->key, 4);
    EXPECT_EQ(in.q.s, 2);
    EXPECT_EQ(in.q.data<double>(), p.in.q().rows(int64_t(nth) * 2, 2).data<double>());
  }
}

TEST(AttentionParts, SumsBeginWithTheFirstPart) {
  const Tensor sum = from_values(std::vector<double>{7, 7}, {2, 1, 1}, DType::f32, test_device());
  const Tensor part = from_values(std::vector<double>{1, 2}, {2, 1, 1}, DType::bf16, test_device());
  add_part(part, sum, /*first=*/true);
  EXPECT_THAT(to_values(sum), ElementsAre(1, 2));
  add_part(part, sum, /*first=*/false);
  EXPECT_THAT(to_values(sum), ElementsAre(2, 4));
}

// Gradients of another type than the tensors' go to queries, keys and values where these are.
TEST(AttentionParts, GradientsGoToWhereQueriesAndKeysAre) {
  const Tensor dq = randn({4, 1, 6}, Seed{4}, DType::f32),
               dkv = randn({4, 1, 5}, Seed{5}, DType::f32);
  const auto gradients = [&](const std::vector<Tensor>& in) {
    Segment segment(in, [&](std::span<const Tensor> x) {
      const ContextProblem p = problem({x.begin(), x.end()});
      const ContextResult result{.o = zeros({4, 1, 4}, DType::bf16, test_device()), .lse = {}};
      return std::vector{
          with_context_backward(p, result,
                                [&](const ContextProblem& kept, const ContextResult&, const Tensor&,
                                    GradOut& grad) { store_gradients(kept, dq, dkv, grad); })};
    });
    const Tensor d_o = zeros({4, 1, 4}, DType::bf16, test_device());
    return segment.backward(std::span(&d_o, 1));
  };
  const auto apart =
      gradients({randn({4, 1, 6}, Seed{6}, DType::bf16), randn({4, 1, 5}, Seed{7}, DType::bf16)});
  expect_close(apart[0], dq, 0x1p-8);
  expect_close(apart[1], dkv, 0x1p-8);
  const auto together = to_values(gradients({packed_heads(DType::bf16)})[0]);
  const auto q = to_values(apart[0]), kv = to_values(apart[1]);
  for (size_t row = 0; row < 4; ++row) {
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(together[row * 11 + i], q[row * 6 + i]);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(together[row * 11 + 6 + i], kv[row * 5 + i]);
  }
}

TEST(AttentionParts, ARankHasTwoChunks) {
  EXPECT_EQ(error_of([] {
              problem({zeros({3, 1, 11}, DType::f64, test_device())});
            }),
            "a rank of context parallelism has two chunks, so 3 rows should be an even number");
}

}  // namespace
}  // namespace phx
