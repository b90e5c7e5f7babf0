#include "phalanx/verify/parity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using Kind = ParityEntry::Kind;

GlobalTensor tensor(std::vector<double> values, int64_t missing = 0) {
  GlobalTensor made;
  made.values = std::move(values);
  made.missing = missing;
  return made;
}

LayoutOutcome outcome() {
  LayoutOutcome one;
  one.steps.resize(1);
  one.steps[0].loss = 2;
  one.steps[0].grad_norm = 1;
  one.steps[0].gradients["w"] = tensor({1, -4});
  one.weights["w"] = tensor({1, 2});
  return one;
}

// Of a model with experts.
LayoutOutcome routed_outcome() {
  LayoutOutcome one = outcome();
  one.steps[0].routers = {{"dropped share of layer 0", 0}, {"z_loss of layer 0", 2}};
  one.buffers["mlp.router.expert_bias"] = tensor({0.1, -0.2});
  return one;
}

TEST(Parity, TheSameRunHasNoFault) {
  const Parity parity = compare(outcome(), outcome());
  EXPECT_EQ(parity.entries.size(), 4u) << "no evaluation: there was none";
  EXPECT_EQ(parity.worst(), 0);
  EXPECT_TRUE(parity.faults().empty());
}

TEST(Parity, ErrorsAreRelativeToTheLargestAndTheWorstComesFirst) {
  LayoutOutcome many = outcome();
  many.steps[0].gradients["w"].values[0] += 4e-3;  // of 4
  many.weights["w"].values[1] += 1e-2;             // of 2
  const Parity parity = compare(many, outcome());
  EXPECT_EQ(parity.entries[0].text(), "w after step 1");
  EXPECT_NEAR(parity.worst(), 5e-3, 1e-12);
  EXPECT_NEAR(parity.worst(Kind::gradient, 1), 1e-3, 1e-12);
  EXPECT_EQ(parity.worst(Kind::gradient, 2), 0);
  EXPECT_THAT(parity.faults(),
              ElementsAre("w after step 1 differs by 5.0e-03 of its largest value",
                          "gradient of w in step 1 differs by 1.0e-03 of its largest value"));
  EXPECT_TRUE(parity.faults(1e-2).empty());
}

TEST(Parity, WhatNoRankHoldsIsAFaultWhateverTheError) {
  LayoutOutcome many = outcome();
  many.weights["w"].missing = 3;
  EXPECT_THAT(compare(many, outcome()).faults(1),
              ElementsAre("w after step 1: no rank holds 3 of its elements"));
  many = outcome();
  many.weights.clear();
  EXPECT_THAT(compare(many, outcome()).faults(1),
              ElementsAre("w after step 1: no rank holds 2 of its elements"));
}

TEST(Parity, RoutersAndBuffersAreCompared) {
  EXPECT_TRUE(compare(routed_outcome(), routed_outcome()).faults().empty());
  LayoutOutcome many = routed_outcome();
  many.steps[0].routers["z_loss of layer 0"] = 2.5;
  many.steps[0].routers["dropped share of layer 0"] = 0.125;
  many.buffers["mlp.router.expert_bias"].values[0] = 0.3;  // of 0.2
  const Parity parity = compare(many, routed_outcome());
  EXPECT_THAT(
      parity.faults(),
      ElementsAre("mlp.router.expert_bias after step 1 differs by 1.0e+00 of its largest value",
                  "z_loss of layer 0 in step 1 differs by 2.5e-01 of its largest value",
                  "dropped share of layer 0 in step 1 differs by 1.2e-01 of its largest value"));
  EXPECT_EQ(parity.worst(Kind::router, 1), 0.25);
  many.steps[0].routers.clear();
  EXPECT_TRUE(std::isinf(compare(many, routed_outcome()).worst(Kind::router, 1)));
}

// A nan compares with nothing: it must not hide among the good ones, so it is infinitely wrong.
TEST(Parity, ANanIsTheWorstOfAll) {
  for (const char* where : {"loss", "weight"}) {
    LayoutOutcome many = outcome();
    many.steps[0].gradients["w"].values[0] += 4;
    if (std::string(where) == "loss") many.steps[0].loss = NAN;
    if (std::string(where) == "weight") many.weights["w"].values[0] = NAN;
    const Parity parity = compare(many, outcome());
    EXPECT_TRUE(std::isinf(parity.worst())) << where;
    EXPECT_EQ(parity.faults(10).size(), 1u) << "no tolerance lets it pass";
  }
}

TEST(Parity, ReplicasThatDifferAndOtherRunsAreFaults) {
  LayoutOutcome many = outcome();
  many.between_replicas = 0.5;
  many.between_replicas_in = {"w"};
  EXPECT_THAT(compare(many, outcome()).faults(),
              ElementsAre("w: ranks that hold the same elements differ, by up to 5.0e-01"));
  many.weights["v"] = tensor({1});
  EXPECT_EQ(error_of([&] { compare(many, outcome()); }), "one rank has no parameter v");
  many.steps.clear();
  EXPECT_EQ(error_of([&] { compare(many, outcome()); }), "runs of 0 and 1 steps");
}

}  // namespace
}  // namespace phx
