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

TEST(Parameter, TellsEachUseThatIsDone) {
  Shuffled module({{0, 0, 4}});
  ParameterStore store(module, test_device(), {.dtype = DType::f64});
  int done = 0;
  module.weight.on_use_done([&](Parameter&) { ++done; });
  const Tensor x = randn({5, 3}, Seed{1}), dy = randn({5, 6}, Seed{2});
  backward(linear(x, module.weight.acquire()), dy);
  EXPECT_EQ(done, 1);
  DeferredWork later;
  backward(linear(x, module.weight.acquire()), dy, {.defer = &later});
  EXPECT_EQ(done, 1);
  for (auto& work : later) work();
  EXPECT_EQ(done, 2);
}

class TwoKinds : public Module {
 public:
  TwoKinds()
      : norm(whole({5}, Init::constant(1))),
        matrix(whole({2, 3}, Init::normal(1))),
        bias(whole({2}, Init::constant(0))) {
    add_parameter("norm", norm);
    add_parameter("matrix", matrix);
    add_parameter("bias", bias);
  }
  Parameter norm, matrix, bias;
};

TEST(ParameterStore, PutsDecayedParametersIntoOneRun) {
  TwoKinds module;
  ParameterStore store(module, test_device(), {});
  ASSERT_EQ(store.runs().size(), 2u);
  EXPECT_TRUE(store.runs()[0].decays);
  EXPECT_EQ(store.parameters()[0]->name(), "matrix");
  EXPECT_EQ(store.num_elements(), 13);
  TwoKinds other;
  ParameterStore also(other, test_device(),
                      {.also_decays = [](const std::string& name) { return name == "norm"; }});
  EXPECT_EQ(also.parameters()[2]->name(), "bias");
}

TEST(ParameterStore, ARunEndsWhereTheLearningRateIsAnother) {
  TwoKinds module;
  ParameterStore store(module, test_device(),
                       {.decoupled = [](const std::string& name) { return name == "bias"; }});
  ASSERT_EQ(store.runs().size(), 3u);  // matrix | norm | bias
  EXPECT_FALSE(store.runs()[1].decoupled);
  EXPECT_TRUE(store.runs()[2].decoupled);
  EXPECT_FALSE(store.runs()[2].decays);
  EXPECT_EQ(store.runs()[2].offset, store.offset_of(2));
  EXPECT_EQ(store.runs()[2].offset + store.runs()[2].count, store.weights().numel());
}

TEST(ParameterStore, NormsAndBiasesHaveBucketsOfTheirOwn) {
  TwoKinds module;
  ParameterStore store(module, test_device(), {.bucket_elements = 1000000, .bucket_parts = 4});
  ASSERT_EQ(store.buckets().size(), 2u);
  EXPECT_FALSE(store.buckets()[0].vectors);
  EXPECT_TRUE(store.buckets()[1].vectors);
  EXPECT_EQ(store.buckets()[0].parameters, std::vector<size_t>{0});  // the matrix
  EXPECT_EQ(store.buckets()[1].range.count % 4, 0);
  EXPECT_EQ(store.buckets()[1].range.end(), store.all().end());
  TwoKinds other;
  EXPECT_EQ(ParameterStore(other, test_device(), {}).buckets().size(), 1u) << "nothing to overlap";
}

TEST(ParameterStore, NamesAParameterThatDoesNotExist) {
  TwoKinds module;
  ParameterStore store(module, test_device(), {});
  EXPECT_EQ(error_of([&] { store.find("weight"); }), "the model has no parameter 'weight'");
}

}  // namespace
}  // namespace phx
