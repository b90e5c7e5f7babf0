// What GPUs get of attention with a place: decided from shapes and options alone. What is computed
// is tested in tests/kernels/cpu and tests/ops.
#include "phalanx/kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx::kernels {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;

constexpr int64_t kChunk = 8;

Device gpu() {
  static Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  return meta.device();
}

// A chunk of queries from `query` on, and `keys` keys from `key` on.
AttentionInputs part(int64_t query, int64_t key, int64_t keys) {
  const Tensor q = empty({kChunk, 1, 32}, DType::bf16, gpu());
  const Tensor k = empty({keys, 1, 32}, DType::bf16, gpu());
  return {.q = heads_of(q, 16, 0, 2),
          .k = heads_of(k, 16, 0, 2),
          .v = heads_of(k, 16, 0, 2),
          .place = AttentionPlace{.query = query, .key = key}};
}

// What the same is without a place: "causal window 3", "all", or "no".
std::string plain(const AttentionInputs& in, const AttentionOptions& options = {}) {
  const std::optional<PlainAttention> found = without_place(in, options);
  if (!found) return "no";
  EXPECT_FALSE(found->in.place.has_value());
  const std::string window =
      found->options.window_left < 0 ? "" : str_cat(" window ", found->options.window_left);
  return (found->options.causal ? "causal" : "all") + window;
}

TEST(AttentionPlace, AChunkOfARingSeesItsOwnKeysCausallyAndEarlierOnesAll) {
  EXPECT_EQ(plain(part(24, 24, kChunk)), "causal");
  EXPECT_EQ(plain(part(24, 16, kChunk)), "all") << "the chunk before";
  EXPECT_EQ(plain(part(24, 0, kChunk)), "all");
  EXPECT_EQ(plain(part(16, 24, kChunk)), "no") << "later keys, which a ring leaves out";
  for (const int64_t key : {0, 16, 24, 32})
    EXPECT_EQ(plain(part(24, key, kChunk), {.causal = false}), "all");
}

TEST(AttentionPlace, GatheredKeysEndWithTheQueriesOrAreAllSeen) {
  EXPECT_EQ(plain(part(24, 0, 32)), "causal") << "the queries are the last ones";
  EXPECT_EQ(plain(part(0, 0, kChunk)), "causal");
  EXPECT_EQ(plain(part(24, 0, 64)), "no") << "keys behind the queries";
  EXPECT_EQ(plain(part(24, 0, 16)), "all") << "all keys stand before the queries";
  EXPECT_EQ(plain(part(24, 0, 64), {.causal = false}), "all");
  EXPECT_EQ(plain(part(24, 8, 24)), "causal");
}

TEST(AttentionPlace, WindowsAreKeptWhereTheQueriesAreTheLastOnes) {
  EXPECT_EQ(plain(part(24, 16, 16), {.window_left = 5}), "causal window 5");
  EXPECT_EQ(plain(part(24, 16, 16), {.causal = false, .window_left = 5}), "all window 5");
  // The last query stands 15 positions behind the first key of the chunk before.
  EXPECT_EQ(plain(part(24, 16, kChunk), {.window_left = 15}), "all");
  EXPECT_EQ(plain(part(24, 16, kChunk), {.window_left = 14}), "no");
}

TEST(AttentionPlace, DropoutAndPackedSequencesNeedPositionsInTheWhole) {
  EXPECT_EQ(plain(part(24, 24, kChunk), {.dropout = 0.1}), "no");
  AttentionInputs packed = part(24, 24, kChunk);
  packed.cu_seqlens = empty({3}, DType::i32, gpu());
  packed.max_seqlen = 20;
  EXPECT_EQ(plain(packed), "no");
  packed.place.reset();
  EXPECT_EQ(plain(packed, {.dropout = 0.1}), "causal") << "no place, nothing to lose";
}

TEST(AttentionPlace, WhatNoGpuKernelKnowsIsAnError) {
  const AttentionInputs in = part(24, 16, kChunk);
  const Tensor o = empty({kChunk, 1, 32}, DType::bf16, gpu());
  Tensor lse = empty({1, 2, kChunk}, DType::f32, gpu());
  EXPECT_THAT(error_of([&] { attention(in, {.dropout = 0.1}, heads_of(o, 16, 0, 2), lse); }),
              HasSubstr("on GPUs queries from 24 on and keys from 16 on"));
}

TEST(AttentionChoice, FewerQueriesThanKeysAreGivenToCudnnWithoutAMaskOnly) {
  const auto chosen = [](AttentionInputs in, bool causal = true) {
    in.place.reset();
    const AttentionChoice choice =
        choose_cuda_attention(in, {.causal = causal}, AttentionPass::forward);
    return std::string(choice == CudaAttention::cudnn ? "cuDNN" : choice.why);
  };
  EXPECT_EQ(chosen(part(24, 24, kChunk)), "cuDNN");
  EXPECT_EQ(chosen(part(24, 0, 24), /*causal=*/false), "cuDNN");
  EXPECT_THAT(chosen(part(24, 0, 32)), HasSubstr("--cp-comm-type p2p or all_gather with a window"));
  AttentionInputs one = part(24, 0, 32);
  one.q = one.q.rows(0, 1);
  EXPECT_EQ(chosen(one), "a single query of a longer past needs no tiles");
}

}  // namespace
}  // namespace phx::kernels
