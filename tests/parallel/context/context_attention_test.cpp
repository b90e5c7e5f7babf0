// Attention over sequences that ranks share against the same on one rank: outputs and gradients.
#include "phalanx/parallel/context/context_attention.h"

#include <gtest/gtest.h>

#include "parallel/context/on_context_ranks.h"
#include "phalanx/comm/meta_world.h"
#include "phalanx/core/segment.h"
#include "phalanx/kernels/attention_use.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

// Of the largest element. f64: sums of a few dozen terms in another order. f32: the same, with
// roundings of 2^-24. bf16: a part's result, gradients of its queries and of its keys are each
// rounded to 2^-9, and up to eight of them are added.
double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 2e-6 : 8 * 0x1p-9;
}

struct Problem {
  int64_t s = 48, b = 2;
  QkvHeads heads = {.n = 8, .g = 4, .d = 6};
  AttentionOptions options = {};
  std::vector<int64_t> ends = {};  // of packed sequences
  bool latent = false;             // q apart from keys and values
  DType dtype = DType::f64;
};

struct Outcome {
  Tensor o;
  std::vector<Tensor> gradients;
};

std::vector<Tensor> inputs_of(const Problem& p) {
  const QkvHeads& h = p.heads;
  const int64_t q = h.n * h.d, kv = h.g * (h.d + h.value_channels());
  const auto input = [&](int64_t width, Seed seed) {
    return randn({p.s, p.b, width}, seed, p.dtype);
  };
  if (p.latent) return {input(q, Seed{1}), input(kv, Seed{2})};
  return {input(q + kv, Seed{1})};
}

PackedSequences packed_in(const Problem& p, Device device) {
  if (p.ends.empty()) return {};
  std::vector<int64_t> ends = {0};
  ends.insert(ends.end(), p.ends.begin(), p.ends.end());
  int64_t longest = 0;
  for (size_t i = 1; i < ends.size(); ++i) longest = std::max(longest, ends[i] - ends[i - 1]);
  return {.cu_seqlens = from_ints(ends, {int64_t(ends.size())}, DType::i32, device),
          .max_seqlen = longest};
}

Outcome run(const Problem& p, std::span<const Tensor> in, const Tensor& d_o,
            const ContextParallel& ranks, int64_t layer) {
  const PackedSequences packed = packed_in(p, d_o.device());
  Segment segment(in, [&](std::span<const Tensor> x) {
    return std::vector{p.latent
                           ? context_attention(x[0], x[1], p.heads, p.options, packed, ranks, layer)
                           : context_attention(x[0], p.heads, p.options, packed, ranks, layer)};
  });
  return {segment.outputs()[0], segment.backward(std::span(&d_o, 1))};
}

void expect_as_on_one_rank(const Problem& p, int ranks, int inner, const char* comm) {
  SCOPED_TRACE(std::string(comm) + " on " + std::to_string(ranks));
  const std::vector<Tensor> whole = inputs_of(p);
  const Tensor d_o = randn({p.s, p.b, p.heads.n * p.heads.value_channels()}, Seed{3}, p.dtype);
  const Outcome one = run(p, whole, d_o, {}, 0);
  std::mutex checks;  // of the test's own runtime
  on_context_ranks(ranks, inner, {context_comm(comm)},
                   [&](const ContextParallel& cp, Device device) {
                     const auto own = [&](const Tensor& x) {
                       const std::lock_guard lock(checks);
                       return rows_of_rank(x, cp.cut(), device);
                     };
                     std::vector<Tensor> in;
                     for (const Tensor& x : whole) in.push_back(own(x));
                     const Outcome part = run(p, in, own(d_o), cp, 0);
                     expect_close(part.o, own(one.o), tolerance(p.dtype));
                     for (size_t i = 0; i < in.size(); ++i)
                       expect_close(part.gradients[i], own(one.gradients[i]), tolerance(p.dtype));
                   });
}

struct Way {
  int ranks, inner;
  const char* comm;
};

class ContextAttention : public ::testing::TestWithParam<Way> {
 protected:
  void expect_parity(const Problem& p) {
    const auto [ranks, inner, comm] = GetParam();
    expect_as_on_one_rank(p, ranks, inner, comm);
  }
  // With other samples, heads and places for its random bits than 0.
  AttentionRandom random() const {
    return {.seed = 7, .site = 11, .step = 3, .samples = {.first = 5}, .first_head = 8};
  }
};

TEST_P(ContextAttention, IsThatOfOneRank) {
  expect_parity({});
  expect_parity({.options = {.causal = false}});
  expect_parity({.options = {.scale = 0.3, .softcap = 2}});
}

TEST_P(ContextAttention, IsThatOfOneRankInNarrowTypes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_parity({.dtype = dtype});
    expect_parity({.options = {.window_left = 7}, .dtype = dtype});
    expect_parity({.heads = {.n = 4, .g = 4, .d = 6, .dv = 5}, .latent = true, .dtype = dtype});
  }
}

TEST_P(ContextAttention, KnowsWindowsThatReachIntoOtherChunksOrDoNot) {
  for (const int window : {0, 3, 7, 20, 100}) expect_parity({.options = {.window_left = window}});
}

TEST_P(ContextAttention, DropsByPlacesInTheWholeSequence) {
  expect_parity({.s = 144, .options = {.dropout = 0.3, .random = random()}});
}

TEST_P(ContextAttention, KeepsPackedSequencesApartWhereverTheyBegin) {
  // Of one token, over several chunks, within one, and two that are empty.
  const std::vector<int64_t> ends = {1, 8, 31, 31, 35, 48, 48};
  expect_parity({.b = 1, .ends = ends});
  expect_parity({.b = 1, .options = {.window_left = 4}, .ends = ends});
  expect_parity({.b = 1, .options = {.dropout = 0.3, .random = random()}, .ends = ends});
}

TEST_P(ContextAttention, TakesHeadsOfTwoSizes) {
  expect_parity({.heads = {.n = 4, .g = 4, .d = 6, .dv = 5}, .latent = true});
  expect_parity(
      {.b = 1, .heads = {.n = 4, .g = 4, .d = 6, .dv = 5}, .ends = {5, 40, 48}, .latent = true});
}

INSTANTIATE_TEST_SUITE_P(Ways, ContextAttention,
                         ::testing::Values(Way{2, 1, "p2p"}, Way{3, 1, "p2p"}, Way{4, 1, "p2p"},
                                           Way{2, 1, "all_gather"}, Way{3, 1, "all_gather"},
                                           Way{4, 1, "all_gather"}, Way{2, 1, "a2a"},
                                           Way{4, 1, "a2a"}, Way{4, 2, "a2a+p2p"},
                                           Way{4, 4, "a2a+p2p"}, Way{8, 2, "a2a+p2p"},
                                           Way{8, 4, "a2a+p2p"}, Way{2, 1, "a2a+p2p"}));

// What computes attention forward and backward on a GPU, of rank 1 of four.
std::vector<std::string> on_gpu(const char* comm, DType dtype, const AttentionOptions& options) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  MetaWorld world(1, 4);
  const auto all = world.group({0, 1, 2, 3}, "cp"), near = world.group({0, 1}, "cp neighbours"),
             ring = world.group({1, 3}, "cp ring");
  const ContextParallel ranks{
      .group = all.get(), .inner = near.get(), .outer = ring.get(), .comm = {context_comm(comm)}};
  const QkvHeads heads{.n = 8, .g = 4, .d = 16};
  const Tensor qkv = empty({16, 2, 256}, dtype, meta.device());
  const Tensor d_o = empty({16, 2, 128}, dtype, meta.device());
  Segment segment(std::span(&qkv, 1), [&](std::span<const Tensor> x) {
    return std::vector{context_attention(x[0], heads, options, {}, ranks, 0)};
  });
  EXPECT_EQ(segment.outputs()[0].shape(), (Shape{16, 2, 128}));
  EXPECT_EQ(segment.backward(std::span(&d_o, 1))[0].shape(), qkv.shape());
  std::vector<std::string> lines;
  for (const auto& line : meta.extension<kernels::AttentionUse>().lines())
    lines.push_back(line.text.substr(0, line.text.find(';')));
  return lines;
}

TEST(ContextAttentionOnGpus, UsesCudnnUnlessARankHasAPartOfAWindow) {
  const std::vector<std::string> cudnn = {"attention forward: cuDNN", "attention backward: cuDNN"};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const char* comm : {"p2p", "all_gather", "a2a", "a2a+p2p"})
      for (const bool causal : {false, true})
        EXPECT_EQ(on_gpu(comm, dtype, {.causal = causal}), cudnn) << comm;
    for (const char* comm : {"p2p", "all_gather"})
      EXPECT_NE(on_gpu(comm, dtype, {.window_left = 9}), cudnn) << comm;
    EXPECT_EQ(on_gpu("a2a", dtype, {.window_left = 9}), cudnn);
  }
}

TEST(ContextAttentionOnGpus, HasAKernelForEveryTypeWindowAndMask) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const char* comm : {"p2p", "all_gather", "a2a", "a2a+p2p"})
      for (const AttentionOptions& options :
           {AttentionOptions{}, AttentionOptions{.causal = false}, AttentionOptions{.softcap = 5},
            AttentionOptions{.window_left = 0}, AttentionOptions{.window_left = 9},
            AttentionOptions{.window_left = 100}})
        EXPECT_FALSE(on_gpu(comm, dtype, options).empty()) << comm;
}

}  // namespace
}  // namespace phx
