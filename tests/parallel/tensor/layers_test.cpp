// Layers that are cut over ranks against the same layer on one rank: outputs and all gradients.
#include "phalanx/parallel/tensor/layers.h"

#include <gtest/gtest.h>

#include "parallel/tensor/on_ranks.h"
#include "phalanx/core/segment.h"
#include "phalanx/nn/parameter_store.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

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

}  // namespace
}  // namespace phx
