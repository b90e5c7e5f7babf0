// What is computed is proved in context_attention_test.cpp; here: which chunks travel.
#include "phalanx/parallel/context/gathered_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/comm/meta_world.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::ElementsAre;

// Eight chunks of four rows.
ContextProblem problem(int window, bool causal = true) {
  const Tensor qkv = zeros({8, 1, 6}, DType::f64, test_device());
  return context_problem({.tensors = {qkv}, .heads = {.n = 1, .g = 1, .d = 2}},
                         {.causal = causal, .window_left = window}, {}, {.ranks = 4, .rank = 1});
}

TEST(GatheredAttention, ARankSeesTheChunksInReachOfItsWindows) {
  EXPECT_THAT(seen_chunks(problem(4), 1), ElementsAre(0, 1, 5, 6));
  EXPECT_THAT(seen_chunks(problem(5), 1), ElementsAre(0, 1, 4, 5, 6));
  EXPECT_THAT(seen_chunks(problem(0), 3), ElementsAre(3, 4));
  EXPECT_THAT(seen_chunks(problem(-1), 3), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(seen_chunks(problem(-1, false), 0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(GatheredAttention, OnlyThoseTravel) {
  const auto sent = [](Bring what, CommOp op) {
    Runtime runtime({.kind = DeviceKind::meta});
    MetaWorld world(1, 4);
    const auto ranks = world.group({0, 1, 2, 3}, "cp");
    const Tensor qkv = empty({8, 1, 6}, DType::f64, runtime.device());
    gathered_attention(context_problem({.tensors = {qkv}, .heads = {.n = 1, .g = 1, .d = 2}},
                                       {.window_left = 4}, {}, {.ranks = 4, .rank = 1}),
                       what, *ranks);
    return world.traffic().at({"cp", op}).bytes_sent;
  };
  // Keys and values of a chunk are 4 rows of 4 numbers. Of its chunks 1 and 6 rank 1 sends the
  // first to rank 2 and the second to rank 0; a gather would bring both to three ranks.
  EXPECT_EQ(sent(Bring::seen, CommOp::send), 2 * 4 * 4 * 8);
  EXPECT_EQ(sent(Bring::all, CommOp::all_gather), 3 * 2 * 4 * 4 * 8);
}

}  // namespace
}  // namespace phx
