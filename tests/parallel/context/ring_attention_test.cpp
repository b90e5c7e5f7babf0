// What is computed is proved in context_attention_test.cpp; here: what travels.
#include "phalanx/parallel/context/ring_attention.h"

#include <gtest/gtest.h>

#include "phalanx/comm/meta_world.h"
#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(RingAttention, KeysGoToTheNextRankInEveryStepButTheLast) {
  Runtime runtime({.kind = DeviceKind::meta});
  MetaWorld world(2, 4);
  const auto ranks = world.group({0, 1, 2, 3}, "cp");
  const Tensor qkv = empty({8, 1, 6}, DType::bf16, runtime.device());
  Segment segment(std::span(&qkv, 1), [&](std::span<const Tensor> in) {
    return std::vector{
        ring_attention(context_problem({.tensors = {in[0]}, .heads = {.n = 1, .g = 1, .d = 2}}, {},
                                       {}, {.ranks = 4, .rank = 2}),
                       *ranks)};
  });
  const auto sent = [&] { return world.traffic().at({"cp", CommOp::send}); };
  constexpr int64_t kKeys = 8 * 4 * 2;  // 8 rows of a key and a value of two channels, in bf16
  EXPECT_EQ(sent().calls, 3);
  EXPECT_EQ(sent().bytes_sent, 3 * kKeys);

  // Again, and their gradients with them, in fp32 all the way round to where they belong.
  world.reset_traffic();
  const Tensor d_o = empty({8, 1, 2}, DType::bf16, runtime.device());
  segment.backward(std::span(&d_o, 1));
  EXPECT_EQ(sent().calls, 3 + 4);
  EXPECT_EQ(sent().bytes_sent, 3 * kKeys + 4 * 2 * kKeys);
}

}  // namespace
}  // namespace phx
