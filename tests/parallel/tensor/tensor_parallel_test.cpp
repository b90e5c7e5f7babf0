#include "phalanx/parallel/tensor/tensor_parallel.h"

#include <gtest/gtest.h>

#include "parallel/tensor/on_ranks.h"
#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

using Values = std::vector<double>;

Tensor values(const Values& all, Device device) {  // [s, 1, 1]
  return from_values(all, {int64_t(all.size()), 1, 1}, DType::f64, device);
}

TEST(TensorParallel, OneRankHasEverything) {
  const TensorParallel one{.sequence = true};
  EXPECT_EQ(one.size(), 1);
  EXPECT_FALSE(one.cuts_sequence());
  EXPECT_EQ(one.part(12), 12);
  EXPECT_EQ(one.sequence_rows(12), 12);
  EXPECT_EQ(one.first_sequence_row(12), 0);
}

TEST(TensorParallel, RowsOfTheSequenceAreCutOnlyWhereItIsParallel) {
  for (const bool sequence : {false, true})
    on_ranks(2, sequence, [&](const TensorParallel& tp, Device) {
      EXPECT_EQ(tp.part(12), 6);
      EXPECT_EQ(tp.first(12), 6 * tp.rank());
      EXPECT_EQ(tp.sequence_rows(12), sequence ? 6 : 12);
      EXPECT_EQ(tp.first_sequence_row(12), sequence ? 6 * tp.rank() : 0);
    });
}

TEST(TensorParallel, EnteringARegionSumsTheGradientsOfTheRanks) {
  for (const bool sequence : {false, true})
    on_ranks(2, sequence, [&](const TensorParallel& tp, Device device) {
      const Tensor whole = values({1, 2, 3, 4}, device);  // [s, b, h]
      const Tensor own = whole.rows(tp.first_sequence_row(4), tp.sequence_rows(4));
      Segment entered(std::span(&own, 1),
                      [&](auto in) { return std::vector{enter_region(in[0], tp)}; });
      EXPECT_EQ(to_values(entered.outputs()[0]), (Values{1, 2, 3, 4}));
      const double r = tp.rank();  // dy is 1, 2, 3, 4 on rank 0 and ten times that on rank 1
      const Tensor dy = values({1 + 9 * r, 2 + 18 * r, 3 + 27 * r, 4 + 36 * r}, device);
      const Values dx = to_values(entered.backward(std::span(&dy, 1))[0]);
      if (!sequence) EXPECT_EQ(dx, (Values{11, 22, 33, 44}));
      if (sequence) EXPECT_EQ(dx, tp.rank() == 0 ? (Values{11, 22}) : (Values{33, 44}));
      EXPECT_EQ(to_values(dy)[0], 1 + 9 * r) << "the gradient that came is others' as well";
    });
}

TEST(TensorParallel, LeavingARegionSumsTheOutputsAndPassesGradientsOn) {
  for (const bool sequence : {false, true})
    on_ranks(2, sequence, [&](const TensorParallel& tp, Device device) {
      const double r = tp.rank();
      const Tensor y = values({1 + r, 2, 3, 4 - r}, device);  // [s, b, h]
      Segment left(std::span(&y, 1), [&](auto in) { return std::vector{leave_region(in[0], tp)}; });
      const Values sum = to_values(left.outputs()[0]);
      if (!sequence) EXPECT_EQ(sum, (Values{3, 4, 6, 7}));
      if (sequence) EXPECT_EQ(sum, tp.rank() == 0 ? (Values{3, 4}) : (Values{6, 7}));
      const Tensor dy = values({5, 6, 7, 8}, device);
      const Tensor own = dy.rows(tp.first_sequence_row(4), tp.sequence_rows(4));
      EXPECT_EQ(to_values(left.backward(std::span(&own, 1))[0]), (Values{5, 6, 7, 8}));
    });
}

TEST(TensorParallel, PositionsThatTheRanksDoNotDivideAreRefused) {
  on_ranks(2, /*sequence=*/true, [](const TensorParallel& tp, Device device) {
    const Tensor y = values({1, 2, 3}, device);
    EXPECT_EQ(error_of([&] { sum_over_ranks(y, tp); }),
              "sequence parallelism cuts 3 positions over 2 ranks, which does not divide them");
  });
}

TEST(TensorParallel, ExchangesGoAlongWithProductsOnGpusAlone) {
  on_ranks(2, true, [](TensorParallel tp, Device device) {
    tp.overlap = true;
    EXPECT_FALSE(tp.overlaps(zeros({1}, DType::f32, device)));
    Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
    EXPECT_TRUE(tp.overlaps(empty({1}, DType::f32, meta.device())));
    tp.overlap = false;
    EXPECT_FALSE(tp.overlaps(empty({1}, DType::f32, meta.device())));
  });
}

}  // namespace
}  // namespace phx
