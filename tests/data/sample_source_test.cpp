#include "phalanx/data/sample_source.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "phalanx/base/error.h"

namespace phx {
namespace {

TEST(TokenFileSource, TrainsOnEverySampleOnceAnEpochAndValidatesOnOthers) {
  const auto path = std::filesystem::temp_directory_path() / "phx_sample_source_test.u16";
  std::vector<int32_t> tokens(1001);
  std::iota(tokens.begin(), tokens.end(), 0);
  TokenFileWriter writer(path);
  writer.append(tokens);
  writer.commit();
  const auto file = std::make_shared<TokenFile>(path);
  const std::array<double, 3> shares = {0.9, 0.1, 0};
  const TokenFileSource train(file, Split::train, 10, shares, 7),
      valid(file, Split::valid, 10, shares, 7);
  ASSERT_EQ(train.samples_in_file(), 90);
  Sample sample;
  std::multiset<int32_t> first, second;
  std::vector<int32_t> order;
  for (int64_t i = 0; i < 180; ++i) {
    train.sample(i, sample);
    (i < 90 ? first : second).insert(sample.tokens[0]);
    order.push_back(sample.tokens[0]);
    EXPECT_EQ(sample.labels.front(), sample.tokens[1]);
    EXPECT_EQ(sample.labels.back(), sample.tokens.back() + 1);
  }
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 90u);
  EXPECT_EQ(first, second);
  EXPECT_FALSE(std::equal(order.begin(), order.begin() + 90, order.begin() + 90))
      << "a new order each epoch";
  valid.sample(0, sample);
  EXPECT_EQ(first.count(sample.tokens[0]), 0u);
  std::filesystem::remove(path);
}

TEST(TokenFileSource, RefusesAFileTooShortForASample) {
  const auto path = std::filesystem::temp_directory_path() / "phx_sample_source_short.u16";
  TokenFileWriter writer(path);
  writer.append(std::vector<int32_t>{1, 2, 3});
  writer.commit();
  const auto file = std::make_shared<TokenFile>(path);
  EXPECT_THROW(TokenFileSource(file, Split::train, 10, {1, 0, 0}, 7), Error);
  std::filesystem::remove(path);
}

class ThreeSamples : public SampleSource {
 public:
  void sample(int64_t index, Sample& out) const override {
    PHX_CHECK(index < 3, "sample ", index, " of 3");
    out.tokens = {int32_t(index)};
  }
  std::optional<int64_t> num_samples() const override { return 3; }
  std::string description() const override { return "three"; }
};

TEST(RepeatedSource, BeginsAnewBehindTheLastSample) {
  const RepeatedSource source(std::make_shared<ThreeSamples>());
  Sample sample;
  std::vector<int32_t> seen;
  for (const int64_t i : {0, 2, 3, 7, 300}) {
    source.sample(i, sample);
    seen.push_back(sample.tokens[0]);
  }
  EXPECT_EQ(seen, (std::vector<int32_t>{0, 2, 0, 1, 0}));
  EXPECT_EQ(source.num_samples(), 3);
}

}  // namespace
}  // namespace phx
