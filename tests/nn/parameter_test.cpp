#include "phalanx/nn/parameter.h"

#include <gtest/gtest.h>

#include "phalanx/core/philox.h"
#include "phalanx/nn/parameter_store.h"
#include "phalanx/ops/linear.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

// A module of one parameter whose rows lie in another order than globally, and with two rows of
// padding.
class Shuffled : public Module {
 public:
  explicit Shuffled(const std::vector<RowPiece>& pieces)
      : weight({.global_shape = {4, 3},
                .local_shape = {6, 3},
                .pieces = pieces_of(pieces, 3),
                .init = Init::normal(0.5)}) {
    add_parameter("weight", weight);
  }
  Parameter weight;
};

TEST(Parameter, InitialWeightsBelongToGlobalRowsWhereverTheyLie) {
  Shuffled plain({{0, 0, 4}}), shuffled({{2, 0, 2}, {0, 4, 2}});
  ParameterStore a(plain, test_device(), {.dtype = DType::f64, .seed = 7});
  ParameterStore b(shuffled, test_device(), {.dtype = DType::f64, .seed = 7});
  const auto x = to_values(plain.weight.value()), y = to_values(shuffled.weight.value());  // [6, 3]
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(y[i], x[6 + i]);   // global rows 2, 3 at local 0, 1
    EXPECT_EQ(y[12 + i], x[i]);  // global rows 0, 1 at local 4, 5
    EXPECT_EQ(y[6 + i], 0.0) << "padding is zero";
  }
}

TEST(Parameter, TheFirstGradientOfAStepOverwritesTheNextOnesAdd) {
  Shuffled module({{0, 0, 4}});
  ParameterStore store(module, test_device(), {.dtype = DType::f64});
  const Tensor x = randn({5, 3}, Seed{1}), dy = randn({5, 6}, Seed{2});
  const auto once = [&] { backward(linear(x, module.weight.acquire()), dy); };
  store.begin_step();
  once();
  const auto first = to_values(module.weight.gradient());
  once();
  const auto second = to_values(module.weight.gradient());
  store.begin_step();
  once();
  EXPECT_EQ(to_values(module.weight.gradient()), first);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_DOUBLE_EQ(second[i], 2 * first[i]);
}

TEST(Parameter, WhatNothingUsedHasGradientZero) {
  Shuffled module({{0, 0, 4}});
  ParameterStore store(module, test_device(), {.dtype = DType::f64});
  backward(linear(randn({5, 3}, Seed{1}), module.weight.acquire()), randn({5, 6}, Seed{2}));
  store.begin_step();
  store.finish_step();
  for (double value : to_values(module.weight.gradient())) EXPECT_EQ(value, 0.0);
}

// Notes what it is told, a letter a call.
class Notes : public WeightDoor {
 public:
  std::string take() { return std::exchange(text_, {}); }

 private:
  void acquire(size_t, WeightUse use) override { text_ += use == WeightUse::forward ? "f" : "b"; }
  void release(size_t) override { text_ += "r"; }
  void open_gradient(size_t) override { text_ += "g"; }
  void use_done(size_t) override { text_ += "d"; }
  std::string text_;
};

// A module with a weight behind a door.
struct Guarded {
  Guarded() { module.weight.set_door(&notes, 0); }
  Shuffled module{{{0, 0, 4}}};
  ParameterStore store{module, test_device(), {.dtype = DType::f64}};
  Notes notes;
  const Tensor x = randn({5, 3}, Seed{1}), dy = randn({5, 6}, Seed{2});
};

TEST(Parameter, ADoorHearsOfEveryUseInForwardAndBackward) {
  Guarded guarded;
  const Tensor y = linear(guarded.x, guarded.module.weight.acquire());
  EXPECT_EQ(guarded.notes.take(), "fr");
  backward(y, guarded.dy);
  EXPECT_EQ(guarded.notes.take(), "bgrd");
}

TEST(Parameter, AGradientThatIsPutOffDoesNotReadTheWeight) {
  Guarded guarded;
  DeferredWork later;
  const Tensor y = linear(guarded.x, guarded.module.weight.acquire());
  backward(y, guarded.dy, {.defer = &later});
  EXPECT_EQ(guarded.notes.take(), "frbr");
  for (auto& work : later) work();
  EXPECT_EQ(guarded.notes.take(), "gd");
}

TEST(Parameter, AUseThatSaysSoIsNotAcquiredInTheBackward) {
  Guarded guarded;
  const Tensor y = linear(guarded.x, guarded.module.weight.acquire(BackwardReads::nothing));
  guarded.notes.take();
  backward(y, guarded.dy);
  EXPECT_EQ(guarded.notes.take(), "gd");
}

}  // namespace
}  // namespace phx
