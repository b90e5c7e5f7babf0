#include "phalanx/core/autograd.h"

#include <gtest/gtest.h>

#include "phalanx/core/accumulate.h"
#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

// y = factor * x, counting how often its closure is alive, to see when saved tensors go.
Tensor times(const Tensor& x, double factor, std::shared_ptr<int> alive = nullptr) {
  Tensor y = empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) y.data<double>()[i] = factor * x.data<double>()[i];
  return with_backward(y, {x}, [factor, alive](const Tensor& dy, GradOut& grad) {
    Tensor& dx = grad.out(0);
    for (int64_t i = 0; i < dy.numel(); ++i) dx.data<double>()[i] = factor * dy.data<double>()[i];
  });
}

Tensor plus(const Tensor& a, const Tensor& b) {
  Tensor y = empty_like(a);
  for (int64_t i = 0; i < a.numel(); ++i)
    y.data<double>()[i] = a.data<double>()[i] + b.data<double>()[i];
  return with_backward(y, {a, b}, [](const Tensor& dy, GradOut& grad) {
    grad.pass(0, dy);
    grad.pass(1, dy);
  });
}

Tensor one() { return from_values(std::vector<double>{1.0}, {1}, DType::f64, test_device()); }

// A parameter in miniature.
struct ToyLeaf : Node {
  ToyLeaf() : Node(test_runtime()), gradient(zeros({1}, DType::f64, test_device())) {}
  bool is_leaf() const override { return true; }
  Sink leaf_sink() override { return {gradient, touched++ ? 1.f : 0.f}; }
  void leaf_done() override { ++done; }
  Tensor gradient;
  int touched = 0, done = 0;
};

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

Tensor with_deferred_weight(const Tensor& x, const Tensor& w) {
  Tensor y = empty_like(x);
  y.data<double>()[0] = x.data<double>()[0] * w.data<double>()[0];
  return with_backward(
      y, {x, w}, [x = x.detach(), w = w.detach()](const Tensor& dy, GradOut& grad) {
        grad.out(0).data<double>()[0] = dy.data<double>()[0] * w.data<double>()[0];
        grad.later(1, [x, dy](const Sink& dw) {
          const Tensor product =
              from_values(std::vector<double>{x.data<double>()[0] * dy.data<double>()[0]}, {1},
                          DType::f64, x.device());
          add_to_sink(product, dw);
        });
      });
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

TEST(Autograd, ReshapeIsDifferentiable) {
  expect_gradients_match(
      [](std::span<const Tensor> in) {
        return in[0].reshape({2, kOpenDim});
      },
      {randn({4, 3}, Seed{1})});
}

}  // namespace
}  // namespace phx
