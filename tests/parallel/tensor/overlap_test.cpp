#include "phalanx/parallel/tensor/overlap.h"

#include <gtest/gtest.h>

#include "parallel/tensor/on_ranks.h"
#include "phalanx/ops/linear.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

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

// 251 positions a rank have no divisor: one chunk. The bias is added once, whatever the chunks.
TEST(Overlap, PositionsThatCannotBeCutAndABiasComeOutTheSame) {
  for (const int64_t own : {251, 258})  // 258 positions are three chunks
    on_ranks(2, /*sequence=*/true, [&](const TensorParallel& tp, Device device) {
      const int64_t s = 2 * own, b = 4;
      const Tensor x = randn({s, b, 8}, Seed{1}, DType::f64, device);  // [s, b, in]
      const Tensor w = randn({6, 8}, Seed{2}, DType::f64, device);     // [out, in]
      const Tensor bias = randn({6}, Seed{3}, DType::f64, device);     // [out]
      Tensor y = empty({s, b, 6}, DType::f64, device);                 // [s, b, out]
      gather_and_multiply(x.rows(tp.first(s), own), w, bias, y, tp);
      expect_close(y, linear(x, w, bias), kClose);
    });
}

}  // namespace
}  // namespace phx
