#include "phalanx/checkpoint/torch/expert_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "checkpoint/memory_source.h"
#include "checkpoint/torch_fixture.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

// f32 numbers that count up from `first`.
void add(TensorsInMemory& source, const std::string& name, const std::vector<int64_t>& shape,
         float first) {
  std::vector<float> values(size_t(whole_box(shape).numel()));
  std::iota(values.begin(), values.end(), first);
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  source.set(name, {DType::f32, shape}, std::move(bytes));
}

const std::string kFc1 = "decoder.layers.1.mlp.experts.linear_fc1.weight";

std::shared_ptr<TensorsInMemory> twelve_experts() {
  auto source = std::make_shared<TensorsInMemory>();
  for (int e = 0; e < 12; ++e) {
    add(*source, kFc1 + std::to_string(e), {3, 2}, float(6 * e));
    add(*source, "optimizer.exp_avg." + kFc1 + std::to_string(e), {3, 2}, float(600 + 6 * e));
  }
  add(*source, "decoder.layers.1.mlp.router.weight", {12, 2}, 0);
  return source;
}

TEST(JoinedExperts, LieOneBelowTheOtherByTheirNumbers) {
  const JoinedExperts joined(twelve_experts());
  ASSERT_EQ(joined.tensors().size(), 3u);
  EXPECT_EQ(joined.tensors().at(kFc1).shape, (std::vector<int64_t>{36, 2}));
  std::vector<double> all(72);
  std::iota(all.begin(), all.end(), 0.0);
  EXPECT_EQ(read_numbers(joined, kFc1), all);
  std::iota(all.begin(), all.end(), 600.0);
  EXPECT_EQ(read_numbers(joined, "optimizer.exp_avg." + kFc1), all);
}

TEST(JoinedExperts, AreReadInBoxesThatBeginAndEndWithinExperts) {
  const JoinedExperts joined(twelve_experts());
  std::vector<double> expected;
  for (int row = 4; row < 11; ++row) expected.push_back(2 * row + 1);
  EXPECT_EQ(read_numbers(joined, kFc1, {{4, 1}, {7, 1}}), expected);
}

TEST(JoinedExperts, ThatAreMissingOrUnlikeAreRefused) {
  const auto error_of_edited = [](const std::function<void(TensorsInMemory&)>& edit) {
    const auto source = twelve_experts();
    edit(*source);
    try {
      const JoinedExperts joined(source);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(error_of_edited([](TensorsInMemory&) {}), "");
  EXPECT_THAT(error_of_edited([](TensorsInMemory& source) { source.erase(kFc1 + "4"); }),
              HasSubstr("has 11 experts of " + kFc1 + ", but one with the number 11"));
  EXPECT_THAT(error_of_edited([](TensorsInMemory& source) {
                add(source, kFc1 + "4", {2, 2}, 0);
              }),
              HasSubstr(kFc1 + "4 is F32 [2, 2], but " + kFc1 + "0 is F32 [3, 2]"));
}

TEST(SplitExperts, AreTheWayBack) {
  const auto source = twelve_experts();
  const SplitExperts split(std::make_shared<JoinedExperts>(source), 12);
  EXPECT_EQ(split.tensors(), source->tensors());
  for (const auto& [name, info] : source->tensors())
    EXPECT_EQ(read_numbers(split, name), read_numbers(*source, name)) << name;
  EXPECT_EQ(read_numbers(split, kFc1 + "7", {{1, 0}, {2, 1}}), (std::vector<double>{44, 46}));
}

}  // namespace
}  // namespace phx
