#include "phalanx/verify/collector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

// Two ranks of which each holds all of `weight`, and one that holds its first half.
class Replicas : public ::testing::Test {
 protected:
  class Vector : public Module {
   public:
    explicit Vector(int64_t held)
        : weight({.global_shape = {4},
                  .local_shape = {4},
                  .pieces = pieces_of({{0, 0, held}}, 1),
                  .init = Init::constant(1)}) {
      add_parameter("weight", weight);
    }
    Parameter weight;
  };

  void add(std::vector<double> held) {
    Vector module(int64_t(held.size()));
    const ParameterStore store(module, test_device(), {.dtype = DType::f64});
    const FlatRange all = store.all();
    held.resize(size_t(all.count));  // padding
    collector.add(outcome.weights, store, from_values(held, {all.count}, DType::f64, test_device()),
                  {&all, 1}, {&all, 1});
  }
  const GlobalTensor& weight() { return outcome.weights.at("weight"); }

  LayoutOutcome outcome;
  Collector collector{outcome};
};

TEST_F(Replicas, ThatAgreeMakeOneTensor) {
  add({1, 2, 3, 4});
  add({1, 2});
  EXPECT_EQ(weight().values, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(weight().missing, 0);
  EXPECT_EQ(outcome.between_replicas_in, std::vector<std::string>{});
}

TEST_F(Replicas, ElementsThatNobodyHoldsAreCounted) {
  add({1, 2});
  EXPECT_EQ(weight().missing, 2);
  EXPECT_TRUE(std::isnan(weight().values[3]));
}

TEST_F(Replicas, ThatDifferAreNamedOnce) {
  add({1, 2, 3, 4});
  add({1, 2.5, 3, 4.25});
  EXPECT_EQ(outcome.between_replicas, 0.5);
  EXPECT_EQ(outcome.between_replicas_in, std::vector<std::string>{"weight"});
}

TEST_F(Replicas, ANanOfTheFirstStays) {
  add({1, NAN, 3, 4});
  add({1, 2, 3, 4});
  EXPECT_TRUE(std::isnan(weight().values[1]));
  EXPECT_EQ(weight().missing, 0);
  EXPECT_EQ(outcome.between_replicas, INFINITY);
  EXPECT_EQ(outcome.between_replicas_in, std::vector<std::string>{"weight"});
}

TEST_F(Replicas, ANanOfTheSecondIsADifference) {
  add({1, 2, 3, 4});
  add({1, NAN, 3.5, 4});
  EXPECT_EQ(outcome.between_replicas, INFINITY);
  EXPECT_EQ(outcome.between_replicas_in, std::vector<std::string>{"weight"});
}

TEST_F(Replicas, ANanOfBothIsInTheTensorAndNothingIsMissing) {
  for (int i = 0; i < 3; ++i) add({NAN, NAN, NAN, NAN});
  EXPECT_TRUE(std::ranges::all_of(weight().values, [](double x) { return std::isnan(x); }));
  EXPECT_EQ(weight().missing, 0);
}

}  // namespace
}  // namespace phx
