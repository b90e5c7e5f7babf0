#include "phalanx/core/autograd.h"

#include <gtest/gtest.h>

#include "core/toy_graph.h"
#include "phalanx/core/segment.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(Autograd, AddsTheGradientsOfEveryUse) {
  const Tensor x = one();
  Segment segment(std::span(&x, 1), [](std::span<const Tensor> in) {
    const Tensor a = times(in[0], 3);
    return std::vector<Tensor>{plus(plus(a, in[0]), times(a, 5))};  // 3x + x + 15x
  });
  const Tensor dy = one();
  EXPECT_EQ(to_values(segment.backward(std::span(&dy, 1))[0])[0], 19.0);
}

TEST(Autograd, APassedGradientIsNotOverwrittenThroughItsOtherHolder) {
  const Tensor x = one(), dy = one();
  Segment segment(std::span(&x, 1), [](std::span<const Tensor> in) {
    return std::vector<Tensor>{plus(in[0], in[0])};
  });
  EXPECT_EQ(to_values(segment.backward(std::span(&dy, 1))[0])[0], 2.0);
  EXPECT_EQ(to_values(dy)[0], 1.0) << "the caller's gradient was added to";
}

TEST(Autograd, APassedGradientIsNotOverwrittenInsideOfAGraphEither) {
  const Tensor x = one(), dy = one();
  Segment segment(std::span(&x, 1), [](std::span<const Tensor> in) {
    const Tensor y = times(in[0], 2);  // no leaf: what is passed to it waits for the second use
    return std::vector<Tensor>{plus(y, y)};
  });
  EXPECT_EQ(to_values(segment.backward(std::span(&dy, 1))[0])[0], 4.0);
  EXPECT_EQ(to_values(dy)[0], 1.0) << "the caller's gradient was added to";
}

TEST(Autograd, FreesWhatTheForwardSavedAsTheBackwardGoes) {
  auto alive = std::make_shared<int>(0);
  const Tensor x = one(), dy = one();
  Segment segment(std::span(&x, 1), [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{times(times(in[0], 2, alive), 3, alive)};
  });
  EXPECT_EQ(alive.use_count(), 3);
  segment.backward(std::span(&dy, 1));
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(Autograd, RecordsNothingUnderNoGrad) {
  Tensor x = one();
  x.set_node(std::make_shared<ToyLeaf>(), 0);
  GradMode off(test_runtime(), false);
  EXPECT_FALSE(times(x, 2).requires_grad());
}

TEST(Autograd, AGraphIsWalkedOnce) {
  Tensor x = one();
  x.set_node(std::make_shared<ToyLeaf>(), 0);
  const Tensor y = times(x, 2);
  backward(y, one());
  EXPECT_EQ(error_of([&] { backward(y, one()); }),
            "backward: this graph was already walked; run the forward again");
}

TEST(Autograd, ALeafIsToldWhenEachUseIsDone) {
  auto leaf = std::make_shared<ToyLeaf>();
  Tensor w = one();
  w.set_node(leaf, 0);
  backward(plus(times(w, 2), times(w, 3)), one());
  EXPECT_EQ(leaf->done, 2);
  EXPECT_EQ(to_values(leaf->gradient)[0], 5.0);
}

TEST(Autograd, WeightGradientsCanBePutOff) {
  auto leaf = std::make_shared<ToyLeaf>();
  Tensor w = one();
  w.set_node(leaf, 0);
  const Tensor x = times(one(), 7);
  DeferredWork work;
  const Tensor y = with_deferred_weight(x, w);
  backward(y, one(), {.defer = &work});
  EXPECT_EQ(leaf->done, 0);
  EXPECT_EQ(work.size(), 1u);
  for (auto& job : work) job();
  EXPECT_EQ(leaf->done, 1);
  EXPECT_EQ(to_values(leaf->gradient)[0], 7.0);
}

}  // namespace
}  // namespace phx
