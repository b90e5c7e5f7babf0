#include "phalanx/data/gpt/blend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;

BlendSpec parsed(std::vector<std::string> words) { return parse_blend(words); }

TEST(Blend, PlacesGoToTheDatasetFurthestBehind) {
  const double weights[] = {.5, .3, .2};
  const BlendIndex index = blend_index(weights, 10);
  EXPECT_THAT(index.dataset, ElementsAre(0, 1, 2, 0, 1, 0, 2, 0, 1, 0));
  EXPECT_THAT(index.sample, ElementsAre(0, 0, 0, 1, 1, 2, 1, 3, 2, 4));
}

TEST(Blend, TheFirstPlaceGoesToTheLargestWeight) {
  const double weights[] = {.2, .5, .3};
  EXPECT_THAT(blend_index(weights, 4).dataset, ElementsAre(1, 2, 0, 1));
}

TEST(Blend, AWeightStandsBeforeEveryPrefixOrBeforeNone) {
  EXPECT_THAT(parsed({"a", "b", "c"}).prefixes, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(parsed({"a", "b", "c"}).weights.empty());
  EXPECT_THAT(parsed({"a", "b"}).prefixes, ElementsAre("a", "b"));
  EXPECT_THAT(parsed({"3", "a", "1", "b"}).weights, ElementsAre(0.75, 0.25));
  EXPECT_THAT(parsed({"1", "a"}).weights, ElementsAre(1));
  EXPECT_EQ(error_of([] {
              parsed({"0.5", "a", "b", "c"});
            }),
            "has 1 weights before 2 prefixes: either every prefix has a weight before it, or none "
            "has");
  EXPECT_EQ(error_of([] {
              parsed({"0", "a", "1", "b"});
            }),
            "gives a the weight 0; a weight is above 0");
}

// As many samples as asked for, each of one token: its own number.
class Numbers : public SampleSource {
 public:
  Numbers(int32_t first, int64_t count) : first_(first), count_(count) {}
  void sample(int64_t index, Sample& out) const override { out.tokens = {first_ + int32_t(index)}; }
  std::optional<int64_t> num_samples() const override { return count_; }
  std::string description() const override { return "numbers"; }

 private:
  int32_t first_;
  int64_t count_;
};

TEST(BlendedDataset, TakesSamplesFromItsDatasets) {
  const double weights[] = {.5, .5};
  const BlendedDataset blend({std::make_shared<Numbers>(100, 2), std::make_shared<Numbers>(200, 2)},
                             blend_index(weights, 4));
  std::vector<int32_t> seen;
  Sample sample;
  for (int64_t i = 0; i < *blend.num_samples(); ++i) {
    blend.sample(i, sample);
    seen.push_back(sample.tokens[0]);
  }
  EXPECT_THAT(seen, ElementsAre(100, 200, 101, 201));
}

TEST(BlendedDataset, RefusesToTakeMoreThanADatasetHas) {
  const double weights[] = {.5, .5};
  const std::string error = error_of([&] {
    BlendedDataset({std::make_shared<Numbers>(0, 1), std::make_shared<Numbers>(0, 2)},
                   blend_index(weights, 4));
  });
  EXPECT_TRUE(error.starts_with("the blend takes 2 samples of dataset 0, which was made for 1"))
      << error;
}

}  // namespace
}  // namespace phx
