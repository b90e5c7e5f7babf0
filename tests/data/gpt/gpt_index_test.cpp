#include "phalanx/data/gpt/gpt_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/base/error.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;

LengthsView view(const std::vector<int32_t>& lengths) {
  return {reinterpret_cast<const std::byte*>(lengths.data()), int64_t(lengths.size())};
}

const std::vector<int32_t> kLengths = {5, 3, 7, 4, 6};

GptIndex example(int64_t num_samples, int threads) {
  return GptIndex::build(
      view(kLengths), {.documents = {0, 5}, .seq_length = 4, .num_samples = num_samples}, threads);
}

TEST(GptIndex, TwoEpochsShuffledTogether) {
  for (const int threads : {1, 3}) {
    const GptIndex index = example(12, threads);
    EXPECT_THAT(index.arrays().documents, ElementsAre(2, 2, 4, 1, 0, 3, 4, 0, 1, 3));
    EXPECT_THAT(index.arrays().starts, ElementsAre(0, 0, 0, 4, 1, 1, 1, 5, 2, 2, 3, 0, 4, 1, 5, 0,
                                                   6, 0, 6, 4, 7, 2, 8, 1, 9, 2));
    EXPECT_THAT(index.arrays().shuffle, ElementsAre(3, 11, 2, 1, 7, 5, 4, 0, 8, 6, 10, 9));
  }
}

TEST(GptIndex, ALastEpochOfWhichLittleIsUsedIsShuffledApart) {
  for (const int threads : {1, 3}) {
    const GptIndex index = example(8, threads);
    EXPECT_THAT(index.arrays().documents, ElementsAre(4, 0, 1, 2, 3, 3, 2, 1, 0, 4));
    EXPECT_THAT(index.arrays().starts, ElementsAre(0, 0, 0, 4, 1, 2, 2, 1, 3, 2, 3, 6, 4, 3, 5, 3,
                                                   6, 3, 7, 0, 8, 1, 9, 0, 9, 4));
    EXPECT_THAT(index.arrays().shuffle, ElementsAre(0, 4, 3, 2, 5, 1, 7, 6, 9, 8, 11, 10));
  }
}

TEST(GptIndex, EpochsAreAsManyAsTheSamplesNeed) {
  EXPECT_EQ(plan_epochs(25, 4, std::nullopt).epochs, 1);
  EXPECT_EQ(plan_epochs(25, 4, 6).epochs, 1);  // 6 * 4 + 1 tokens
  EXPECT_EQ(plan_epochs(25, 4, 7).epochs, 2);
  EXPECT_EQ(plan_epochs(25, 4, 0).epochs, 1);
  EXPECT_EQ(plan_epochs(1, 4, 3).epochs, 13);
  const EpochPlan plan = plan_epochs(25, 4, 8);
  EXPECT_TRUE(plan.last_apart);
  EXPECT_EQ(plan.samples_before_last, 6);
}

TEST(GptIndex, ManyThreadsMakeWhatOneMakes) {
  std::vector<int32_t> lengths(300000);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = int32_t(i * 2654435761u % 97);  // some 0
  const GptIndexRequest request{
      .documents = {1000, 290000}, .seq_length = 333, .num_samples = 60000, .seed = 77};
  const GptIndex one = GptIndex::build(view(lengths), request, 1);
  const GptIndex many = GptIndex::build(view(lengths), request, 5);
  EXPECT_TRUE(std::ranges::equal(one.arrays().documents, many.arrays().documents));
  EXPECT_TRUE(std::ranges::equal(one.arrays().starts, many.arrays().starts));
  EXPECT_TRUE(std::ranges::equal(one.arrays().shuffle, many.arrays().shuffle));
}

TEST(GptIndex, RefusesDataThatHasNoSample) {
  EXPECT_EQ(error_of([] {
              const std::vector<int32_t> lengths = {2, 2};
              GptIndex::build(view(lengths), {.documents = {0, 2}, .seq_length = 4}, 1);
            }),
            "the 2 documents have 4 tokens; a sample needs sequence length + 1 = 5");
}

TEST(SplitRange, RoundsAsPythonDoes) {
  const double halves[] = {0.5, 0.5, 0.0};
  EXPECT_EQ(split_range(halves, 0, 5)->count, 2);  // 2.5 to the even neighbour
  EXPECT_EQ(split_range(halves, 1, 5)->first, 2);
  EXPECT_EQ(split_range(halves, 1, 5)->count, 3);
  EXPECT_EQ(split_range(halves, 0, 7)->count, 4);  // 3.5
  EXPECT_FALSE(split_range(halves, 2, 7).has_value());
}

}  // namespace
}  // namespace phx
