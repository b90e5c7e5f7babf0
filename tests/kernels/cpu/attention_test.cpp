// Attention of a part of the queries over a part of the keys. The whole is tested in
// ops/attention_test.cpp.
#include "phalanx/kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/kernels/attention_merge.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using kernels::AttentionInputs;
using kernels::AttentionOptions;
using kernels::AttentionPlace;

constexpr double kClose = 1e-13;  // sums of some hundred terms in another order
constexpr int64_t kHeads = 2, kWidth = 5;

struct Tensors {
  Tensor q, k, v;
  Tensor cu_seqlens = {};
  int64_t max_seqlen = 0;
};

Tensors random_tensors(int64_t s) {
  const Shape shape{s, 1, kHeads * kWidth};
  return {randn(shape, Seed{1}), randn(shape, Seed{2}), randn(shape, Seed{3})};
}

HeadView view(const Tensor& x) { return heads_of(x, kWidth, 0, kHeads); }

AttentionInputs whole(const Tensors& t) {
  return {.q = view(t.q),
          .k = view(t.k),
          .v = view(t.v),
          .cu_seqlens = t.cu_seqlens,
          .max_seqlen = t.max_seqlen};
}

struct Rows {
  int64_t first, count;
};

AttentionInputs part(const Tensors& t, Rows queries, Rows keys) {
  AttentionInputs in = whole(t);
  in.q = in.q.rows(queries.first, queries.count);
  in.k = in.k.rows(keys.first, keys.count);
  in.v = in.v.rows(keys.first, keys.count);
  in.place = AttentionPlace{.query = queries.first, .key = keys.first};
  return in;
}

struct Result {
  Tensor o, lse;
};

Result run(const AttentionInputs& in, const AttentionOptions& options) {
  Result result{empty({in.q.s, 1, kHeads * kWidth}, DType::f64, test_device()),
                empty({1, kHeads, in.q.s}, DType::f64, test_device())};
  kernels::attention(in, options, view(result.o), result.lse);
  return result;
}

// Keys [0, cut) and the others, merged, against all at once; queries from `first` on.
void expect_parts_make_the_whole(const Tensors& t, const AttentionOptions& options, int64_t first,
                                 int64_t cut) {
  const int64_t s = t.q.dim(0);
  const Result all = run(whole(t), options);
  const Result sum = run(part(t, {first, s - first}, {0, cut}), options);
  const Result more = run(part(t, {first, s - first}, {cut, s - cut}), options);
  kernels::merge_attention(more.o, more.lse, sum.o, sum.lse);
  expect_close(sum.o, all.o.rows(first, s - first), kClose);
}

TEST(CpuAttention, PartsOfTheKeysMakeTheWhole) {
  const Tensors t = random_tensors(150);  // more than two blocks of 64
  for (const int64_t first : {0, 37, 128})
    for (const int64_t cut : {1, 64, 70, 149}) {
      expect_parts_make_the_whole(t, {}, first, cut);
      expect_parts_make_the_whole(t, {.causal = false, .softcap = 2}, first, cut);
      expect_parts_make_the_whole(t, {.window_left = 20}, first, cut);
    }
}

TEST(CpuAttention, DropoutOfAPartIsThatOfTheWhole) {
  const Tensors t = random_tensors(150);
  const AttentionOptions options{.dropout = 0.3,
                                 .random = {.seed = 3, .site = 5, .samples = {.first = 2}}};
  for (const int64_t first : {0, 37, 128})
    for (const int64_t cut : {1, 64, 70, 149}) expect_parts_make_the_whole(t, options, first, cut);
}

TEST(CpuAttention, PackedSequencesMayBeginAndEndInAnyPart) {
  Tensors t = random_tensors(60);
  t.cu_seqlens =
      from_ints(std::vector<int64_t>{0, 1, 20, 20, 45, 60}, {6}, DType::i32, test_device());
  t.max_seqlen = 25;
  for (const int64_t first : {0, 19, 30})
    for (const int64_t cut : {1, 20, 33, 59}) {
      expect_parts_make_the_whole(t, {}, first, cut);
      expect_parts_make_the_whole(t, {.window_left = 4}, first, cut);
    }
}

TEST(CpuAttention, QueriesThatSeeNoKeyAreZeroAndWeighNothing) {
  const Tensors t = random_tensors(8);
  const Result early = run(part(t, {0, 4}, {4, 4}), {});
  EXPECT_THAT(to_values(early.o), ::testing::Each(0));
  EXPECT_THAT(to_values(early.lse), ::testing::Each(::testing::Lt(-1e29)));
}

TEST(CpuAttention, GradientsOfPartsAddUpToThoseOfTheWhole) {
  constexpr int64_t kRows = 100;
  const Tensors t = random_tensors(kRows);
  const Tensor d_o = randn(t.q.shape(), Seed{4});
  const AttentionOptions options{.dropout = 0.3,
                                 .random = {.seed = 3, .site = 5, .samples = {.first = 2}}};
  const Result all = run(whole(t), options);
  struct Gradients {
    Tensor q, k, v;
  };
  const auto backward = [&](const AttentionInputs& in, Rows queries) {
    Gradients d{empty({in.q.s, 1, kHeads * kWidth}, DType::f64, test_device()),
                empty({in.k.s, 1, kHeads * kWidth}, DType::f64, test_device()),
                empty({in.k.s, 1, kHeads * kWidth}, DType::f64, test_device())};
    std::vector<double> lse;
    for (int64_t head = 0; head < kHeads; ++head)
      for (int64_t i = 0; i < queries.count; ++i)
        lse.push_back(to_values(all.lse)[size_t(head * kRows + queries.first + i)]);
    kernels::attention_backward(
        in, options, view(all.o).rows(queries.first, queries.count),
        from_values(lse, {1, kHeads, queries.count}, DType::f64, test_device()),
        view(d_o).rows(queries.first, queries.count),
        {.dq = view(d.q), .dk = view(d.k), .dv = view(d.v)});
    return d;
  };
  const Gradients of_all = backward(whole(t), {0, kRows});
  const Rows queries{30, 70};
  const Gradients early = backward(part(t, queries, {0, 45}), queries);
  const Gradients late = backward(part(t, queries, {45, 55}), queries);
  std::vector<double> dq = to_values(early.q), more = to_values(late.q);
  for (size_t i = 0; i < dq.size(); ++i) dq[i] += more[i];
  expect_close(from_values(dq, early.q.shape(), DType::f64, test_device()),
               of_all.q.rows(queries.first, queries.count), kClose);
  // Keys from 45 on are seen by queries of this part only.
  expect_close(late.k, of_all.k.rows(45, 55), kClose);
  expect_close(late.v, of_all.v.rows(45, 55), kClose);
}

}  // namespace
}  // namespace phx
