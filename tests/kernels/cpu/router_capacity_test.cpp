#include <gtest/gtest.h>

#include "phalanx/kernels/router.h"
#include "support/gradients.h"

namespace phx::kernels {
namespace {

using namespace phx::testing;

using Values = std::vector<double>;

// Four tokens with two choices each, of three experts; the third token lost a choice before.
struct Choices {
  Tensor indices =
      from_ints(std::vector<int64_t>{0, 1, 0, 2, 0, -1, 1, 0}, {4, 2}, DType::i32, test_device());
  Tensor probs =
      from_values(Values{.2, .8, .5, .5, .9, 0, .3, .5}, {4, 2}, DType::f64, test_device());

  Values kept(int64_t capacity, bool by_weight) const {
    Tensor keep = empty({4, 2}, DType::u8, test_device());
    keep_within_capacity(indices, probs, 3, capacity, by_weight, keep);
    Values values;
    for (int64_t i = 0; i < 8; ++i) values.push_back(keep.data<uint8_t>()[i]);
    return values;
  }
};

TEST(RouterCapacity, AnExpertKeepsTheTokensWithTheLargestWeight) {
  const Choices choices;  // expert 0: .2 .5 .9 .5, expert 1: .8 .3, expert 2: .5
  EXPECT_EQ(choices.kept(1, true), (Values{0, 1, 0, 1, 1, 0, 0, 0}));
  EXPECT_EQ(choices.kept(3, true), (Values{0, 1, 1, 1, 1, 0, 1, 1}));
}

TEST(RouterCapacity, OfEqualWeightsTheEarlierTokenIsKept) {
  EXPECT_EQ(Choices().kept(2, true), (Values{0, 1, 1, 1, 1, 0, 1, 0}));
}

TEST(RouterCapacity, ByPositionTheEarliestTokensAreKept) {
  EXPECT_EQ(Choices().kept(2, false), (Values{1, 1, 1, 1, 0, 0, 1, 0}));
}

TEST(RouterCapacity, WhatWasDroppedBeforeTakesNoPlace) {
  const Choices choices;
  EXPECT_EQ(choices.kept(8, false), (Values{1, 1, 1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(choices.kept(8, true), choices.kept(8, false));
}

TEST(RouterCapacity, ADroppedChoiceHasNoExpertAndNoWeight) {
  Choices choices;
  Tensor keep = empty({4, 2}, DType::u8, test_device());
  keep_within_capacity(choices.indices, choices.probs, 3, 1, true, keep);
  drop_choices(keep, choices.indices, choices.probs);
  const int32_t* indices = choices.indices.data<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(indices, indices + 8),
            (std::vector<int32_t>{-1, 1, -1, 2, 0, -1, -1, -1}));
  EXPECT_EQ(to_values(choices.probs), (Values{0, .8, 0, .5, .9, 0, 0, 0}));
}

}  // namespace
}  // namespace phx::kernels
