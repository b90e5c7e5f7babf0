// Layers that are cut over ranks against the same layer on one rank: outputs and all gradients.
#include "phalanx/parallel/tensor/layers.h"

#include <gtest/gtest.h>

#include <mutex>

#include "phalanx/comm/thread_world.h"
#include "phalanx/core/segment.h"
#include "phalanx/nn/parameter_store.h"
#include "phalanx/ops/linear.h"
#include "phalanx/parallel/tensor/key_groups.h"
#include "phalanx/parallel/tensor/overlap.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr double kClose = 1e-13;  // sums of a few dozen terms in another order

// f(tp, device) on `ranks` threads, each with a runtime of its own.
void on_ranks(int ranks, bool sequence,
              const std::function<void(const TensorParallel&, Device)>& f) {
  run_thread_ranks(ranks, {}, [&](World& world) {
    Runtime runtime;
    std::vector<int> all;
    for (int i = 0; i < ranks; ++i) all.push_back(i);
    const auto group = world.group(all, "tp");
    f({.group = group.get(), .sequence = sequence}, runtime.device());
  });
}

Tensor columns(const Tensor& x, int64_t first, int64_t width) {
  Tensor part = empty(x.shape().with_last(width), x.dtype(), x.device());
  copy_columns(x, first, part);
  return part;
}

TEST(ColumnLinear, RanksHoldRowsOfTheOneRanksWeightAndItsGradients) {
  for (const bool sequence : {false, true}) {
    on_ranks(2, sequence, [&](const TensorParallel& tp, Device device) {
      const Tensor x = randn({4, 3, 8}, Seed{1}, DType::f64, device);    // [s, b, in]
      const Tensor dy = randn({4, 3, 12}, Seed{2}, DType::f64, device);  // [s, b, out]
      ColumnLinear whole(8, cut_rows({12}, {}), {}, {}), part(8, cut_rows({12}, tp), {}, tp);
      ParameterStore one(whole, device, {.dtype = DType::f64}),
          many(part, device, {.dtype = DType::f64});
      Segment expected(std::span(&x, 1),
                       [&](auto in) { return std::vector{whole.forward(in[0])}; });
      const Tensor own = x.rows(tp.first_sequence_row(4), tp.sequence_rows(4));
      Segment got(std::span(&own, 1), [&](auto in) { return std::vector{part.forward(in[0])}; });
      const int64_t first = tp.first(12), width = tp.part(12);
      expect_close(got.outputs()[0], columns(expected.outputs()[0], first, width), kClose);

      const Tensor part_dy = columns(dy, first, width);
      const Tensor dx = expected.backward(std::span(&dy, 1))[0];
      expect_close(got.backward(std::span(&part_dy, 1))[0],
                   dx.rows(tp.first_sequence_row(4), tp.sequence_rows(4)), kClose);
      expect_close(many.find("weight").gradient(), one.find("weight").gradient().rows(first, width),
                   kClose);
      expect_close(many.find("bias").gradient(), one.find("bias").gradient().rows(first, width),
                   kClose);
    });
  }
}

TEST(ColumnLinear, PartsAreCutEachByItself) {
  on_ranks(2, false, [](const TensorParallel& tp, Device) {
    const RowCut cut = cut_rows({6, 6}, tp);  // gate | up
    EXPECT_EQ(cut.global_rows, 12);
    EXPECT_EQ(cut.local_rows, 6);
    ASSERT_EQ(cut.pieces.size(), 2u);
    EXPECT_EQ(cut.pieces[0].global_row, 3 * tp.rank());
    EXPECT_EQ(cut.pieces[1].global_row, 6 + 3 * tp.rank());
    EXPECT_EQ(cut.pieces[1].local_row, 3);
  });
}

TEST(RowLinear, RanksHoldColumnsAndTheirOutputsAreSummed) {
  for (const bool sequence : {false, true}) {
    on_ranks(2, sequence, [&](const TensorParallel& tp, Device device) {
      const Tensor x = randn({4, 3, 8}, Seed{1}, DType::f64, device);   // [s, b, in]
      const Tensor dy = randn({4, 3, 6}, Seed{2}, DType::f64, device);  // [s, b, out]
      RowLinear whole(8, 6, {.bias = false}, {}), part(8, 6, {.bias = false}, tp);
      ParameterStore one(whole, device, {.dtype = DType::f64}),
          many(part, device, {.dtype = DType::f64});
      Segment expected(std::span(&x, 1),
                       [&](auto in) { return std::vector{whole.multiply(in[0])}; });
      const Tensor own = columns(x, tp.first(8), tp.part(8));
      Segment got(std::span(&own, 1), [&](auto in) { return std::vector{part.multiply(in[0])}; });
      const int64_t first = tp.first_sequence_row(4), rows = tp.sequence_rows(4);
      expect_close(got.outputs()[0], expected.outputs()[0].rows(first, rows), kClose);

      const Tensor part_dy = dy.rows(first, rows);
      const Tensor dx = expected.backward(std::span(&dy, 1))[0];
      expect_close(got.backward(std::span(&part_dy, 1))[0], columns(dx, tp.first(8), tp.part(8)),
                   kClose);
      expect_close(many.find("weight").gradient(),
                   columns(one.find("weight").gradient(), tp.first(8), tp.part(8)), kClose);
    });
  }
}

TEST(RowLinear, RefusesInputsThatTheRanksDoNotDivide) {
  on_ranks(2, false, [](const TensorParallel& tp, Device) {
    EXPECT_EQ(error_of([&] { RowLinear(7, 6, {}, tp); }),
              "a row-parallel layer of 7 inputs cannot be cut over 2 ranks");
  });
}

TEST(VocabTable, EveryRankLooksUpItsWordsAndTheSumIsTheWhole) {
  for (const bool sequence : {false, true}) {
    on_ranks(2, sequence, [&](const TensorParallel& tp, Device device) {
      const Tensor ids = rand_ints({4, 3}, 9, Seed{1}, DType::i64, device);
      VocabTable whole(9, 5, Init::normal(1), 12, {}), part(9, 5, Init::normal(1), 12, tp);
      ParameterStore one(whole, device, {.dtype = DType::f64}),
          many(part, device, {.dtype = DType::f64});
      const int64_t first = tp.first_sequence_row(4), rows = tp.sequence_rows(4);
      const Tensor y = whole.forward(ids, 2.0), own = part.forward(ids, 2.0);
      expect_close(own.detach(), y.detach().rows(first, rows), kClose);
      const Tensor dy = randn({4, 3, 5}, Seed{3}, DType::f64, device);
      backward(y, dy);
      backward(own, dy.rows(first, rows));
      expect_close(many.find("weight").gradient(),
                   one.find("weight").gradient().rows(tp.first(12), 6), kClose);
    });
  }
}

TEST(KeyGroups, SharersPutTheirSlicesTogetherAndSumTheirGradients) {
  const int64_t q = 4, d = 6;
  on_ranks(2, false, [&](const TensorParallel& tp, Device device) {
    // The whole key and value, and what rank r's queries send back.
    const Tensor kv = randn({3, 2, 2 * d}, Seed{1}, DType::f64, device);  // k | v
    const Tensor queries = randn({3, 2, q}, Seed{uint64_t(10 + tp.rank())}, DType::f64, device);
    Tensor part = empty({3, 2, q + d}, DType::f64, device);
    copy_columns(queries, 0, q, part, 0);
    copy_columns(kv, tp.rank() * d / 2, d / 2, part, q);
    copy_columns(kv, d + tp.rank() * d / 2, d / 2, part, q + d / 2);
    Segment got(std::span(&part, 1),
                [&](auto in) { return std::vector{gather_key_group(in[0], q, d, *tp.group)}; });
    expect_close(columns(got.outputs()[0], 0, q), queries, 0);
    expect_close(columns(got.outputs()[0], q, 2 * d), kv, 0);

    Tensor summed = zeros({3, 2, q + 2 * d}, DType::f64, device);
    std::vector<Tensor> dys;
    for (int r = 0; r < 2; ++r)
      dys.push_back(randn({3, 2, q + 2 * d}, Seed{uint64_t(20 + r)}, DType::f64, device));
    const auto a = to_values(dys[0]), b = to_values(dys[1]);
    std::vector<double> sum(a.size());
    for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
    summed = from_values(sum, summed.shape(), DType::f64, device);
    const Tensor dpart = got.backward(std::span(&dys[size_t(tp.rank())], 1))[0];
    expect_close(columns(dpart, 0, q), columns(dys[size_t(tp.rank())], 0, q), 0);
    expect_close(columns(dpart, q, d / 2), columns(summed, q + tp.rank() * d / 2, d / 2), kClose);
    expect_close(columns(dpart, q + d / 2, d / 2),
                 columns(summed, q + d + tp.rank() * d / 2, d / 2), kClose);
  });
}

// The chunks of --tp-comm-overlap, which only GPUs use, compute the same thing.
TEST(Overlap, ChunksGatherAndMultiplyLikeTheWhole) {
  for (const bool sequence : {false, true}) {
    on_ranks(2, sequence, [&](const TensorParallel& tp, Device device) {
      const int64_t s = 256, b = 4;  // enough rows for several chunks
      const Tensor x = randn({s, b, 8}, Seed{1}, DType::f64, device);
      const Tensor w = randn({6, 8}, Seed{2}, DType::f64, device);
      if (sequence) {
        Tensor y = empty({s, b, 6}, DType::f64, device);
        gather_and_multiply(x.rows(tp.first(s), tp.part(s)), w, Tensor(), y, tp);
        expect_close(y, linear(x, w), kClose);
      }
      const Tensor sum = multiply_and_sum(x, w, tp);  // every rank adds the same summand
      const auto once = to_values(linear(x, w).rows(tp.first_sequence_row(s), tp.sequence_rows(s)));
      const auto twice = to_values(sum);
      ASSERT_EQ(once.size(), twice.size());
      for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-11);
    });
  }
}

}  // namespace
}  // namespace phx
