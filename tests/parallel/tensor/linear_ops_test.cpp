#include "phalanx/parallel/tensor/linear_ops.h"

#include <gtest/gtest.h>

#include "parallel/tensor/on_ranks.h"
#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(LinearOps, OnOneRankTheyArePlainProducts) {
  const Tensor x = randn({3, 2, 4}, Seed{1});  // [s, b, in]
  const Tensor w = randn({5, 4}, Seed{2});     // [out, in]
  const Tensor b = randn({5}, Seed{3});        // [out]
  expect_close(column_linear(x, w, b, {}), linear(x, w, b), 0);
  expect_close(row_linear(x, w, {}), linear(x, w), 0);
}

TEST(LinearOps, AnInputThatIsMadeAgainGivesTheSameGradients) {
  for (const int ranks : {1, 2})
    for (const bool sequence : {false, true})
      on_ranks(ranks, sequence, [&](const TensorParallel& tp, Device device) {
        const Tensor x = randn({4, 3, 8}, Seed{1}, DType::f64, device);  // [s, b, in]
        const Tensor own = x.rows(tp.first_sequence_row(4), tp.sequence_rows(4));
        const Tensor w = randn({6, 8}, Seed{2}, DType::f64, device);  // [out/tp, in]
        const Tensor v = randn({5, 6}, Seed{3}, DType::f64, device);  // [out, in/tp]
        int remade = 0;
        const auto run = [&](bool remakes) {
          const Remake remake = [&] { return ++remade, own; };
          const std::vector<Tensor> inputs = {own, w, v};
          Segment layer(inputs, [&](auto in) {
            const Tensor y = column_linear(in[0], in[1], Tensor(), tp, remakes ? remake : Remake{});
            const Tensor kept = y.detach();
            const Remake again = [kept] { return kept; };
            return std::vector{row_linear(y, in[2], tp, remakes ? again : Remake{})};
          });
          const Tensor dy = randn(layer.outputs()[0].shape(), Seed{4}, DType::f64, device);
          return layer.backward(std::span(&dy, 1));
        };
        const auto plain = run(false), made = run(true);
        EXPECT_EQ(remade, 1);
        for (size_t i = 0; i < 3; ++i) expect_close(made[i], plain[i], 0);
      });
}

TEST(LinearOps, AFrozenWeightNeedsNoInput) {
  on_ranks(2, false, [](const TensorParallel& tp, Device device) {
    const Tensor x = randn({4, 3, 8}, Seed{1}, DType::f64, device);  // [s, b, in]
    const Tensor w = randn({6, 8}, Seed{2}, DType::f64, device);     // [out/tp, in], no gradient
    bool remade = false;
    Segment layer(std::span(&x, 1), [&](auto in) {
      return std::vector{column_linear(in[0], w, Tensor(), tp, [&] { return remade = true, x; })};
    });
    const Tensor dy = randn({4, 3, 6}, Seed{3}, DType::f64, device);
    EXPECT_EQ(layer.backward(std::span(&dy, 1))[0].shape(), x.shape());
    EXPECT_FALSE(remade);
  });
}

TEST(LinearOps, AWeightThatDoesNotFitIsRefused) {
  on_ranks(2, false, [](const TensorParallel& tp, Device device) {
    const Tensor x = zeros({4, 3, 8}, DType::f64, device), w = zeros({6, 7}, DType::f64, device);
    EXPECT_EQ(error_of([&] { column_linear(x, w, Tensor(), tp); }),
              "column_linear: x is [4, 3, 8], so w should be [out, 8], but it is [6, 7]");
    EXPECT_EQ(error_of([&] { row_linear(x, w, tp); }),
              "row_linear: x is [4, 3, 8], so w should be [out, 8], but it is [6, 7]");
  });
}

}  // namespace
}  // namespace phx
