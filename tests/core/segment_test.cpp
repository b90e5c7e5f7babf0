#include "phalanx/core/segment.h"

#include <gtest/gtest.h>

#include "core/toy_graph.h"

namespace phx {
namespace {

using namespace phx::testing;

Tensor two() { return from_values(std::vector<double>{2.0}, {1}, DType::f64, test_device()); }

TEST(Segment, KnowsNothingOfTheGraphOutside) {
  auto leaf = std::make_shared<ToyLeaf>();
  Tensor w = one();
  w.set_node(leaf, 0);
  const Tensor x = times(w, 3), dy = one();
  Segment segment(std::span(&x, 1),
                  [](std::span<const Tensor> in) { return std::vector<Tensor>{times(in[0], 5)}; });
  EXPECT_FALSE(segment.outputs()[0].requires_grad());
  EXPECT_EQ(to_values(segment.backward(std::span(&dy, 1))[0])[0], 5.0);
  EXPECT_EQ(leaf->touched, 0) << "the backward went on past the segment's input";
}

TEST(Segment, GivesGradientsOfFloatingInputsInOrder) {
  const Tensor inputs[] = {
      one(), from_ints(std::vector<int64_t>{7}, {1}, DType::i64, test_device()), Tensor(), two()};
  const Tensor dy = one();
  Segment segment(inputs, [](std::span<const Tensor> in) {
    EXPECT_FALSE(in[2].defined());
    return std::vector<Tensor>{plus(times(in[0], 3), times(in[3], 4))};
  });
  const std::vector<Tensor> gradients = segment.backward(std::span(&dy, 1));
  ASSERT_EQ(gradients.size(), 4u);
  EXPECT_EQ(to_values(gradients[0])[0], 3.0);
  EXPECT_FALSE(gradients[1].defined());
  EXPECT_FALSE(gradients[2].defined());
  EXPECT_EQ(to_values(gradients[3])[0], 4.0);
}

TEST(Segment, AnInputThatNothingUsedHasNoGradient) {
  const Tensor inputs[] = {one(), two()};
  const Tensor dy = one();
  Segment segment(inputs,
                  [](std::span<const Tensor> in) { return std::vector<Tensor>{times(in[0], 3)}; });
  const std::vector<Tensor> gradients = segment.backward(std::span(&dy, 1));
  EXPECT_TRUE(gradients[0].defined());
  EXPECT_FALSE(gradients[1].defined());
}

TEST(Segment, OutputsThatAreTakenAreHeldByTheTakerAlone) {
  const Tensor x = one(), dy = one();
  Segment segment(std::span(&x, 1),
                  [](std::span<const Tensor> in) { return std::vector<Tensor>{times(in[0], 5)}; });
  const std::vector<Tensor> taken = segment.take_outputs();
  EXPECT_TRUE(taken[0].sole_owner());
  EXPECT_TRUE(segment.outputs().empty());
  EXPECT_EQ(to_values(segment.backward(std::span(&dy, 1))[0])[0], 5.0);
}

TEST(Recompute, RunsTheForwardOnceMoreAndOnlyInTheBackward) {
  int runs = 0;
  const Tensor x = one(), dy = one();
  const auto forward = [&](std::span<const Tensor> in) {
    ++runs;
    return std::vector<Tensor>{times(in[0], 2)};
  };
  {
    GradMode off(test_runtime(), false);
    recompute(std::span(&x, 1), forward);
    EXPECT_EQ(runs, 1);
  }
  Segment segment(std::span(&x, 1),
                  [&](std::span<const Tensor> in) { return recompute(in, forward); });
  EXPECT_EQ(runs, 2);
  segment.backward(std::span(&dy, 1));
  EXPECT_EQ(runs, 3);
}

TEST(Recompute, WeightsInsideGetTheirGradientsThoughNoInputWantsOne) {
  auto leaf = std::make_shared<ToyLeaf>();
  Tensor w = one();
  w.set_node(leaf, 0);
  const Tensor x = two(), dy = one();  // x has no graph: the first block of a model
  const std::vector<Tensor> y = recompute(std::span(&x, 1), [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{with_deferred_weight(in[0], w)};
  });
  backward(y[0], dy);
  EXPECT_EQ(to_values(leaf->gradient)[0], 2.0);
}

TEST(Recompute, GivesTheSameGradientAndKeepsNothingInBetween) {
  auto leaf = std::make_shared<ToyLeaf>();
  Tensor w = one();
  w.set_node(leaf, 0);
  auto alive = std::make_shared<int>(0);
  const Tensor x = one(), dy = one();
  Segment segment(std::span(&x, 1), [&](std::span<const Tensor> in) {
    return recompute(in, [&](std::span<const Tensor> again) {
      return std::vector<Tensor>{
          plus(times(again[0], 4, alive), with_deferred_weight(again[0], w))};
    });
  });
  EXPECT_EQ(alive.use_count(), 1) << "the forward of a recomputed segment saved something";
  EXPECT_EQ(to_values(segment.backward(std::span(&dy, 1))[0])[0], 5.0);
  EXPECT_EQ(to_values(leaf->gradient)[0], 1.0);
  EXPECT_EQ(leaf->done, 1);
}

TEST(RecomputeRows, EveryPieceIsComputedAgainAndGivesItsOwnGradient) {
  int calls = 0;
  const auto forward = [&](const Tensor& rows) {
    ++calls;
    EXPECT_LE(rows.dim(0), 2);
    return times(rows, 3);
  };
  Tensor x = from_values(std::vector<double>{1, 2, 3, 4, 5}, {5}, DType::f64, test_device());
  const Tensor dy =
      from_values(std::vector<double>{1, 10, 100, 1000, 7}, {5}, DType::f64, test_device());
  Segment segment(std::span(&x, 1), [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{recompute_rows(in[0], 3, forward)};
  });
  EXPECT_EQ(to_values(segment.outputs()[0]), (std::vector<double>{3, 6, 9, 12, 15}));
  EXPECT_EQ(calls, 3) << "pieces of two rows, and the last one";
  EXPECT_EQ(to_values(segment.backward(std::span(&dy, 1))[0]),
            (std::vector<double>{3, 30, 300, 3000, 21}));
  EXPECT_EQ(calls, 6);
}

TEST(RecomputeRows, WhatNobodyReadsIsComputedForTheBackwardOnly) {
  int calls = 0;
  const Tensor x = from_values(std::vector<double>{1, 2, 3}, {3}, DType::f64, test_device());
  const Tensor dy = from_values(std::vector<double>{1, 10, 100}, {3}, DType::f64, test_device());
  Segment segment(std::span(&x, 1), [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{recompute_rows_later(in[0], {3}, 2, [&](const Tensor& rows) {
      ++calls;
      return times(rows, 3);
    })};
  });
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(segment.outputs()[0].shape(), Shape({3}));
  EXPECT_EQ(to_values(segment.backward(std::span(&dy, 1))[0]), (std::vector<double>{3, 30, 300}));
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace phx
