#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/torch/legacy_fixture.h"
#include "phalanx/checkpoint/torch/torch_states.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

class TorchGroupedStates : public OneRank {};

TEST_F(TorchGroupedStates, GroupsThatDoNotFitTheModelAreRefused) {
  chunks_[0].parameters.pop_back();  // a vector
  EXPECT_THAT(error("{}"), HasSubstr("which are which is not known"));
}

TEST_F(TorchGroupedStates, EveryParameterHasStateOfItsShape) {
  const auto args = parse_json("{}");
  const TorchRank rank{.file = archive_, .distributed = nullptr, .chunks = chunks_, .args = args};
  const auto states = grouped_states(rank, *archive_.root().find("optimizer"));
  ASSERT_EQ(states.size(), 1u);
  for (const std::string& name : chunks_[0].parameters) {
    const Dims& shape = chunks_[0].tensors.at(name).info.shape;
    for (const char* state : {"optimizer.exp_avg.", "optimizer.exp_avg_sq.", "optimizer.master."})
      EXPECT_EQ(states[0].at(state).at(name).info, (TensorInfo{DType::f32, shape}))
          << state << name;
  }
}

TEST_F(TorchGroupedStates, GroupsWithOneLearningRateCannotBeToldApart) {
  EXPECT_THAT(error(R"({"decoupled_lr": 0.5, "lr": 0.5})"),
              HasSubstr("--decoupled-lr equal to --lr: its groups cannot be told apart"));
}

// The groups of this file are by weight decay alone: under the arguments of a run with a learning
// rate of its own for the embedding they do not fit.
TEST_F(TorchGroupedStates, AnEmbeddingWithItsOwnLearningRateIsInAGroupOfItsOwn) {
  EXPECT_THAT(error(R"({"decoupled_lr": 0.5, "lr": 0.25})"), HasSubstr("which are which is not"));
}

TEST_F(TorchGroupedStates, AnOptimizerWithoutListsIsNone) {
  const auto args = parse_json("{}");
  const TorchRank rank{.file = archive_, .distributed = nullptr, .chunks = chunks_, .args = args};
  EXPECT_THAT(error_of([&] { grouped_states(rank, *archive_.root().find("model")); }),
              HasSubstr("'optimizer' has no lists of groups and states"));
}

}  // namespace
}  // namespace phx
